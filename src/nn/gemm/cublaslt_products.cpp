#include <ATen/Functions.h>

#include <algorithm>

#include "nn/gemm/gpu_products.hpp"
#include "nn/gemm/product_makers.hpp"

namespace garonne::nn {
namespace {

class CublasLtProducts final : public GpuProducts {
 public:
  std::string_view name() const override { return "cuBLASLt"; }

  // It finds no way to multiply by a single row or column, and the tensor library does not ask.
  bool does(const ProductShape& shape) const override {
    return std::min({shape.rows, shape.outputs, shape.inputs}) > 1;
  }

  at::Tensor forward(const Queue&, const at::Tensor& x, const at::Tensor& weight,
                     const at::Tensor& bias) const override {
    at::Tensor y = at::empty({x.size(0), weight.size(0)}, x.options());
    const PreferredBlas preferred(backend());
    if (bias.defined()) {
      // In the product's epilogue: neither bias nor result are scaled.
      at::addmm_out(y, bias, x, weight.t());
    } else {
      at::mm_out(y, x, weight.t());
    }
    return y;
  }

 protected:
  at::BlasBackend backend() const override { return at::BlasBackend::Cublaslt; }
};

}  // namespace

const ProductLibrary& cublaslt_products() {
  static const CublasLtProducts products;
  return products;
}

}  // namespace garonne::nn
