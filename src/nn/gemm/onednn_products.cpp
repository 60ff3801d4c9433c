#include <ATen/core/dispatch/Dispatcher.h>

#include "nn/gemm/onednn_workspace.hpp"
#include "nn/gemm/product_makers.hpp"

namespace garonne::nn {
namespace {

class OneDnnProducts : public ProductLibrary {
 public:
  std::string_view name() const override { return "oneDNN"; }

  // bfloat16 products of the tensor library are oneDNN's already.
  bool does(const ProductShape& shape) const override {
    return shape.precision == Precision::Float32 && shape.form == ProductForm::Forward;
  }

  std::int64_t workspace_bytes(const Declaration& declaration,
                               const ProductShape& shape) const override {
    return float32_workspace_bytes(declaration, shape.inputs);
  }
  bool workspace_is_estimated() const override { return true; }

  at::Tensor forward(const Queue&, const at::Tensor& x, const at::Tensor& weight,
                     const at::Tensor& bias) const override {
    static const auto operation =
        c10::Dispatcher::singleton().findSchemaOrThrow("mkldnn::_linear_pointwise", "");
    torch::jit::Stack stack{x,
                            weight,
                            bias.defined() ? c10::IValue(bias) : c10::IValue(),
                            std::string("none"),
                            c10::List<std::optional<at::Scalar>>(),
                            std::optional<std::string>("")};
    operation.callBoxed(stack);
    return stack.back().toTensor();
  }
};

}  // namespace

const ProductLibrary& onednn_products() {
  static const OneDnnProducts products;
  return products;
}

}  // namespace garonne::nn
