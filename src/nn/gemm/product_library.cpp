#include "nn/gemm/product_library.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "nn/gemm/product_makers.hpp"

namespace garonne::nn {

std::string product_key(const ProductShape& shape) {
  static const char* const forms[] = {"forward", "input-gradient", "weight-gradient"};
  return fmt::format("{} {} {}x{}x{}", forms[static_cast<int>(shape.form)],
                     precision_name(shape.precision), shape.rows, shape.outputs, shape.inputs);
}

void ProductLibrary::input_gradient(const Queue&, const at::Tensor&, const at::Tensor&, at::Tensor&,
                                    double) const {
  throw InternalError(std::string(name()) + " makes no gradients of inputs");
}

void ProductLibrary::weight_gradient(const Queue&, const at::Tensor&, const at::Tensor&,
                                     at::Tensor&, bool, double) const {
  throw InternalError(std::string(name()) + " makes no gradients of weights");
}

const std::vector<const ProductLibrary*>& product_libraries() {
  static const std::vector<const ProductLibrary*> libraries = {
      &mkl_products(), &onednn_products(), &openblas_products(), &cublas_products(),
      &cublaslt_products()};
  return libraries;
}

const ProductLibrary* find_product_library(std::string_view name) {
  for (const ProductLibrary* library : product_libraries()) {
    if (library->name() == name) return library;
  }
  return nullptr;
}

std::vector<const ProductLibrary*> product_candidates(const ProductShape& shape, DeviceKind kind) {
  std::vector<const ProductLibrary*> candidates;
  for (const ProductLibrary* library : product_libraries()) {
    if (library->works_on(kind) && library->available() && library->does(shape))
      candidates.push_back(library);
  }
  return candidates;
}

const ProductLibrary& default_product_library(const ProductShape& shape, DeviceKind kind) {
  if (kind != DeviceKind::Cuda) return mkl_products();
  // Adding a bias by itself may take longer than the product.
  const bool adds_bias = shape.form == ProductForm::Forward && shape.bias;
  return adds_bias && cublaslt_products().does(shape) ? cublaslt_products() : cublas_products();
}

ProductTransients product_transients(const Declaration& declaration, std::int64_t rows,
                                     std::int64_t outputs, std::int64_t inputs) {
  // A GPU's library keeps a workspace of its own, and adds products of bfloat16 to sums in float32.
  if (declaration.device.is_gpu()) return {};
  const auto most = [&](ProductForm form) {
    const ProductShape shape{form, rows, outputs, inputs, declaration.precision};
    std::int64_t bytes = 0;
    // Also of those that are not here: bounds are the same on all machines of a processor.
    for (const ProductLibrary* library : product_libraries()) {
      if (library->works_on(declaration.device.kind) && library->does(shape))
        bytes = std::max(bytes, library->workspace_bytes(declaration, shape));
    }
    return bytes;
  };
  return {most(ProductForm::Forward), most(ProductForm::InputGradient),
          most(ProductForm::WeightGradient)};
}

}  // namespace garonne::nn
