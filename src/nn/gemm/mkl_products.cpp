#include <ATen/Functions.h>

#include <algorithm>

#include "kernels/bias.hpp"
#include "kernels/convert.hpp"
#include "nn/element_type.hpp"
#include "nn/gemm/onednn_workspace.hpp"
#include "nn/gemm/product.hpp"
#include "nn/gemm/product_makers.hpp"
#include "nn/gemm/widened_product.hpp"

namespace garonne::nn {
namespace {

// The tensor library's own are slow here.
bool is_widened(const at::Tensor& matrix) {
  return matrix.scalar_type() == at::kBFloat16 && matrix.is_cpu() && !multiplies_bfloat16();
}

class MklProducts : public ProductLibrary {
 public:
  std::string_view name() const override { return "MKL"; }
  bool does(const ProductShape&) const override { return true; }

  std::int64_t workspace_bytes(const Declaration& declaration,
                               const ProductShape& shape) const override {
    if (shape.precision != Precision::BFloat16) return 0;
    const auto [form, m, n, k, precision, bias] = shape;
    const bool adds = form == ProductForm::WeightGradient;
    const auto bytes = [&](const BFloat16Product& product) {
      if (!multiplies_bfloat16()) {
        return widened_product_bytes(declaration, product.m, product.n, product.k,
                                     /*float32_result=*/adds);
      }
      const std::int64_t workspace = bfloat16_workspace_bytes(declaration, product);
      if (!adds) return workspace;
      // A product that is added is made before that, and scaled by a number that the tensor library
      // holds in two types.
      const std::int64_t scale = 2 * declaration.allocation(sizeof(double));
      return declaration.tensor(product.m * product.n) + std::max(workspace, scale);
    };
    switch (form) {
      case ProductForm::Forward:
        return bytes({.m = m, .n = n, .k = k, .transposed_right = true});
      case ProductForm::InputGradient:
        return bytes({.m = m, .n = k, .k = n});
      case ProductForm::WeightGradient:
        break;
    }
    return bytes({.m = n, .n = k, .k = m, .transposed_left = true});
  }

  at::Tensor forward(const Queue& queue, const at::Tensor& x, const at::Tensor& weight,
                     const at::Tensor& bias) const override {
    at::Tensor y = at::empty({x.size(0), weight.size(0)}, x.options());
    if (is_widened(x)) {
      widened_product(x, weight.t(), y, /*accumulate=*/false, /*scale=*/1);
    } else {
      at::mm_out(y, x, weight.t());
    }
    if (bias.defined()) {
      kernels::add_bias(queue, element_type_of(y), y.data_ptr(), bias.data_ptr(), y.size(0),
                        y.size(1));
    }
    return y;
  }

  void input_gradient(const Queue&, const at::Tensor& gradient, const at::Tensor& weight,
                      at::Tensor& result, double scale) const override {
    if (is_widened(gradient)) {
      widened_product(gradient, weight, result, /*accumulate=*/false, scale);
    } else if (scale == 1) {
      at::mm_out(result, gradient, weight);
    } else {
      at::addmm_out(result, result, gradient, weight, /*beta=*/0, /*alpha=*/scale);
    }
  }

  void weight_gradient(const Queue& queue, const at::Tensor& gradient, const at::Tensor& x,
                       at::Tensor& result, bool accumulate, double scale) const override {
    if (x.scalar_type() != at::kBFloat16) {
      at::addmm_out(result, result, gradient.t(), x, /*beta=*/accumulate ? 1 : 0, /*alpha=*/scale);
      return;
    }
    if (is_widened(x)) {
      widened_product(gradient.t(), x, result, accumulate, scale);
      return;
    }
    at::Tensor product = at::mm(gradient.t(), x);
    if (scale != 1) product.mul_(scale);
    kernels::accumulate_from(queue, element_type_of(product), product.data_ptr(), result.data_ptr(),
                             result.numel(), accumulate);
  }
};

}  // namespace

const ProductLibrary& mkl_products() {
  static const MklProducts products;
  return products;
}

}  // namespace garonne::nn
