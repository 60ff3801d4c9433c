#include "nn/gemm/product.hpp"

#include <ATen/Functions.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <fmt/format.h>

#include <algorithm>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "kernels/bias.hpp"
#include "kernels/convert.hpp"
#include "kernels/product.hpp"
#include "nn/element_type.hpp"

namespace garonne::nn {
namespace {

Precision precision_of(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kFloat    ? Precision::Float32
         : tensor.scalar_type() == at::kDouble ? Precision::Float64
                                               : Precision::BFloat16;
}

ProductShape shape_of(ProductForm form, const at::Tensor& matrix, std::int64_t rows,
                      std::int64_t outputs, std::int64_t inputs) {
  return {form, rows, outputs, inputs, precision_of(matrix)};
}

at::Tensor onednn_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
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

const std::vector<std::pair<std::string, ProductLibrary>>& library_names() {
  static const std::vector<std::pair<std::string, ProductLibrary>> names = {
      {"MKL", ProductLibrary::Mkl},
      {"oneDNN", ProductLibrary::OneDnn},
      {"OpenBLAS", ProductLibrary::OpenBlas}};
  return names;
}

}  // namespace

std::string product_key(const ProductShape& shape) {
  static const char* const forms[] = {"forward", "input-gradient", "weight-gradient"};
  return fmt::format("{} {} {}x{}x{}", forms[static_cast<int>(shape.form)],
                     precision_name(shape.precision), shape.rows, shape.outputs, shape.inputs);
}

std::string library_name(ProductLibrary library) {
  for (const auto& [name, value] : library_names()) {
    if (value == library) return name;
  }
  return "unknown";
}

std::vector<ProductLibrary> product_candidates(const ProductShape& shape) {
  std::vector<ProductLibrary> candidates = {ProductLibrary::Mkl};
  // bfloat16 products of the tensor library are oneDNN's already.
  if (shape.precision == Precision::Float32 && shape.form == ProductForm::Forward) {
    candidates.push_back(ProductLibrary::OneDnn);
  }
  if (shape.precision != Precision::BFloat16 && kernels::openblas_available()) {
    candidates.push_back(ProductLibrary::OpenBlas);
  }
  return candidates;
}

void Products::choose(const ProductShape& shape, ProductLibrary library) {
  choices_[product_key(shape)] = library;
}

bool Products::has(const ProductShape& shape) const {
  return choices_.count(product_key(shape)) > 0;
}

ProductLibrary Products::choice(const ProductShape& shape) const {
  const auto found = choices_.find(product_key(shape));
  return found == choices_.end() ? ProductLibrary::Mkl : found->second;
}

nlohmann::ordered_json Products::to_json() const {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const auto& [key, library] : choices_) json[key] = library_name(library);
  return json;
}

Products Products::from_json(const nlohmann::json& json) {
  Products products;
  for (const auto& [key, name] : json.items()) {
    bool known = false;
    for (const auto& [candidate, library] : library_names()) {
      if (name != candidate) continue;
      if (library == ProductLibrary::OpenBlas && !kernels::openblas_available()) {
        throw ConfigError("products", candidate,
                          "is what this run was started with and is not available here");
      }
      products.choices_[key] = library;
      known = true;
    }
    if (!known) throw ConfigError("products", name.dump(), "is no library of this build");
  }
  return products;
}

at::Tensor Products::forward(const Queue& queue, const at::Tensor& x, const at::Tensor& weight,
                             const at::Tensor& bias) const {
  const std::int64_t inputs = weight.size(1);
  const std::int64_t outputs = weight.size(0);
  const std::int64_t rows = x.numel() / inputs;
  const at::Tensor flat = x.view({rows, inputs});
  const ProductLibrary library = choice(shape_of(ProductForm::Forward, x, rows, outputs, inputs));
  if (library == ProductLibrary::OneDnn) return onednn_linear(flat, weight, bias);
  at::Tensor y = at::empty({rows, outputs}, x.options());
  if (library == ProductLibrary::OpenBlas) {
    kernels::openblas_product(queue, element_type_of(x), false, true, rows, outputs, inputs, 1.0,
                              flat.data_ptr(), inputs, weight.data_ptr(), inputs, 0.0, y.data_ptr(),
                              outputs);
  } else {
    at::mm_out(y, flat, weight.t());
  }
  if (bias.defined())
    kernels::add_bias(queue, element_type_of(y), y.data_ptr(), bias.data_ptr(), rows, outputs);
  return y;
}

at::Tensor Products::input_gradient(const Queue& queue, const at::Tensor& gradient,
                                    const at::Tensor& weight, double scale) const {
  const std::int64_t inputs = weight.size(1);
  const std::int64_t outputs = weight.size(0);
  const std::int64_t rows = gradient.numel() / outputs;
  const at::Tensor flat = gradient.view({rows, outputs});
  at::Tensor result = at::empty({rows, inputs}, gradient.options());
  const ProductLibrary library =
      choice(shape_of(ProductForm::InputGradient, gradient, rows, outputs, inputs));
  if (library == ProductLibrary::OpenBlas) {
    kernels::openblas_product(queue, element_type_of(result), false, false, rows, inputs, outputs,
                              scale, flat.data_ptr(), outputs, weight.data_ptr(), inputs, 0.0,
                              result.data_ptr(), inputs);
  } else if (scale == 1) {
    at::mm_out(result, flat, weight);
  } else {
    at::addmm_out(result, result, flat, weight, /*beta=*/0, /*alpha=*/scale);
  }
  return result;
}

void Products::weight_gradient(const Queue& queue, const at::Tensor& gradient, const at::Tensor& x,
                               at::Tensor target, bool accumulate, double scale) const {
  const std::int64_t outputs = gradient.size(-1);
  const std::int64_t inputs = x.size(-1);
  const std::int64_t rows = x.numel() / inputs;
  const at::Tensor dy = gradient.view({rows, outputs});
  const at::Tensor flat = x.view({rows, inputs});
  if (x.scalar_type() == at::kBFloat16) {
    at::Tensor product = at::mm(dy.t(), flat);
    if (scale != 1) product.mul_(scale);
    kernels::accumulate_from(queue, element_type_of(product), product.data_ptr(), target.data_ptr(),
                             outputs * inputs, accumulate);
    return;
  }
  at::Tensor matrix = target.view({outputs, inputs});
  const ProductLibrary library =
      choice(shape_of(ProductForm::WeightGradient, x, rows, outputs, inputs));
  if (library == ProductLibrary::OpenBlas) {
    kernels::openblas_product(queue, element_type_of(x), true, false, outputs, inputs, rows, scale,
                              dy.data_ptr(), outputs, flat.data_ptr(), inputs,
                              accumulate ? 1.0 : 0.0, matrix.data_ptr(), inputs);
  } else {
    at::addmm_out(matrix, matrix, dy.t(), flat, /*beta=*/accumulate ? 1 : 0, /*alpha=*/scale);
  }
}

ProductTransients product_transients(const Declaration& declaration, std::int64_t rows,
                                     std::int64_t outputs, std::int64_t inputs) {
  ProductTransients transients;
  if (declaration.precision == Precision::Float32)
    transients.forward_bytes = float32_workspace_bytes(declaration, inputs);
  if (declaration.precision != Precision::BFloat16) return transients;
  transients.forward_bytes =
      low_precision_workspace_bytes(declaration, rows, outputs, inputs, false);
  transients.input_gradient_bytes =
      low_precision_workspace_bytes(declaration, rows, inputs, outputs, false);
  transients.weight_gradient_bytes =
      declaration.tensor(outputs * inputs) +
      low_precision_workspace_bytes(declaration, outputs, inputs, rows, true);
  return transients;
}

namespace {

// oneDNN's descriptors of one product on one thread.
constexpr std::int64_t descriptor_bytes = 1152;

}  // namespace

std::int64_t float32_workspace_bytes(const Declaration& declaration, std::int64_t inputs) {
  const std::int64_t right = declaration.allocation(64 * round_up(inputs, 32) * 4);
  return declaration.threads * (right + descriptor_bytes) + 64;
}

std::int64_t low_precision_workspace_bytes(const Declaration& declaration, std::int64_t m,
                                           std::int64_t n, std::int64_t k, bool transposed_left) {
  const std::int64_t element = declaration.element_bytes();
  const std::int64_t padded = round_up(k, 32);
  const std::int64_t m_block = std::min<std::int64_t>(m, 256);
  const std::int64_t n_block = std::min<std::int64_t>(n, 64);
  const std::int64_t left =
      transposed_left ? declaration.allocation(m_block * padded * element) : 0;
  // A depth that is no multiple of the packing is copied once more beside a transposed left side.
  const std::int64_t right =
      declaration.allocation(64 * padded * element) * (transposed_left && padded != k ? 2 : 1);
  const std::int64_t sums = declaration.allocation(m_block * n_block * 4);
  // Also what small matrices of odd sizes are aligned by.
  constexpr std::int64_t descriptors = descriptor_bytes + 2048;
  // 64: the scale, which the product takes as a tensor.
  return declaration.threads * (left + right + sums + descriptors) + 64;
}

}  // namespace garonne::nn
