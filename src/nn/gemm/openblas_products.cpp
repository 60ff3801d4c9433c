#include <ATen/Functions.h>

#include "kernels/bias.hpp"
#include "kernels/product.hpp"
#include "nn/element_type.hpp"
#include "nn/gemm/product_makers.hpp"

namespace garonne::nn {
namespace {

class OpenBlasProducts : public ProductLibrary {
 public:
  std::string_view name() const override { return "OpenBLAS"; }
  std::string version() const override {
    if (!available()) return "not available";
    const std::string description = kernels::openblas_description();
    return description.substr(0, description.find(' ', description.find(' ') + 1));
  }
  bool available() const override { return kernels::openblas_available(); }

  bool does(const ProductShape& shape) const override {
    return shape.precision != Precision::BFloat16;
  }

  std::int64_t workspace_bytes(const Declaration&, const ProductShape&) const override { return 0; }

  at::Tensor forward(const Queue& queue, const at::Tensor& x, const at::Tensor& weight,
                     const at::Tensor& bias) const override {
    const std::int64_t rows = x.size(0);
    const std::int64_t outputs = weight.size(0);
    const std::int64_t inputs = weight.size(1);
    at::Tensor y = at::empty({rows, outputs}, x.options());
    kernels::openblas_product(queue, element_type_of(x), false, true, rows, outputs, inputs, 1.0,
                              x.data_ptr(), inputs, weight.data_ptr(), inputs, 0.0, y.data_ptr(),
                              outputs);
    if (bias.defined())
      kernels::add_bias(queue, element_type_of(y), y.data_ptr(), bias.data_ptr(), rows, outputs);
    return y;
  }

  void input_gradient(const Queue& queue, const at::Tensor& gradient, const at::Tensor& weight,
                      at::Tensor& result, double scale) const override {
    const std::int64_t outputs = weight.size(0);
    const std::int64_t inputs = weight.size(1);
    kernels::openblas_product(queue, element_type_of(result), false, false, gradient.size(0),
                              inputs, outputs, scale, gradient.data_ptr(), outputs,
                              weight.data_ptr(), inputs, 0.0, result.data_ptr(), inputs);
  }

  void weight_gradient(const Queue& queue, const at::Tensor& gradient, const at::Tensor& x,
                       at::Tensor& result, bool accumulate, double scale) const override {
    const std::int64_t outputs = gradient.size(1);
    const std::int64_t inputs = x.size(1);
    kernels::openblas_product(queue, element_type_of(x), true, false, outputs, inputs, x.size(0),
                              scale, gradient.data_ptr(), outputs, x.data_ptr(), inputs,
                              accumulate ? 1.0 : 0.0, result.data_ptr(), inputs);
  }
};

}  // namespace

const ProductLibrary& openblas_products() {
  static const OpenBlasProducts products;
  return products;
}

}  // namespace garonne::nn
