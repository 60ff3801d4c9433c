#include <ATen/Functions.h>

#include "kernels/bias.hpp"
#include "nn/element_type.hpp"
#include "nn/gemm/gpu_products.hpp"
#include "nn/gemm/product_makers.hpp"

namespace garonne::nn {
namespace {

class CublasProducts final : public GpuProducts {
 public:
  std::string_view name() const override { return "cuBLAS"; }
  bool does(const ProductShape&) const override { return true; }

  at::Tensor forward(const Queue& queue, const at::Tensor& x, const at::Tensor& weight,
                     const at::Tensor& bias) const override {
    at::Tensor y = at::empty({x.size(0), weight.size(0)}, x.options());
    {
      const PreferredBlas preferred(backend());
      at::mm_out(y, x, weight.t());
    }
    if (bias.defined()) {
      kernels::add_bias(queue, element_type_of(y), y.data_ptr(), bias.data_ptr(), y.size(0),
                        y.size(1));
    }
    return y;
  }

 protected:
  at::BlasBackend backend() const override { return at::BlasBackend::Cublas; }
};

}  // namespace

const ProductLibrary& cublas_products() {
  static const CublasProducts products;
  return products;
}

}  // namespace garonne::nn
