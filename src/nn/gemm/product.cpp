#include "nn/gemm/product.hpp"

#include <ATen/Functions.h>
#include <nlohmann/json.hpp>

#include "base/error.hpp"

namespace garonne::nn {
namespace {

Precision precision_of(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kFloat    ? Precision::Float32
         : tensor.scalar_type() == at::kDouble ? Precision::Float64
                                               : Precision::BFloat16;
}

// Null of what is no name of a library.
const ProductLibrary* library_of(const nlohmann::json& name) {
  return name.is_string() ? find_product_library(name.get<std::string>()) : nullptr;
}

}  // namespace

void Products::choose(const ProductShape& shape, const ProductLibrary& library) {
  choices_[product_key(shape)] = &library;
}

bool Products::has(const ProductShape& shape) const {
  return choices_.count(product_key(shape)) > 0;
}

const ProductLibrary& Products::choice(const ProductShape& shape, DeviceKind kind) const {
  const auto found = choices_.find(product_key(shape));
  const bool chosen = found != choices_.end() && found->second->works_on(kind);
  return chosen ? *found->second : default_product_library(shape, kind);
}

nlohmann::ordered_json Products::to_json() const {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const auto& [key, library] : choices_) json[key] = std::string(library->name());
  return json;
}

std::optional<ConfigError> Products::refusal_of(const nlohmann::json& json) {
  for (const auto& [key, name] : json.items()) {
    const ProductLibrary* library = library_of(name);
    if (library == nullptr)
      return ConfigError("products", name.dump(), "is no library of this build");
    if (!library->available()) {
      return ConfigError("products", std::string(library->name()),
                         "is what this run was started with and is not available here");
    }
  }
  return std::nullopt;
}

Products Products::from_json(const nlohmann::json& json) {
  if (const auto refusal = refusal_of(json)) throw ConfigError(*refusal);
  Products products;
  for (const auto& [key, name] : json.items()) products.choices_[key] = library_of(name);
  return products;
}

nlohmann::json choices_for(DeviceKind kind, const nlohmann::json& choices) {
  nlohmann::json kept = nlohmann::json::object();
  for (const auto& [key, name] : choices.items()) {
    const ProductLibrary* library = library_of(name);
    if (library == nullptr || library->works_on(kind)) kept[key] = name;
  }
  return kept;
}

at::Tensor Products::forward(const Queue& queue, const at::Tensor& x, const at::Tensor& weight,
                             const at::Tensor& bias) const {
  const std::int64_t inputs = weight.size(1);
  const std::int64_t rows = x.numel() / inputs;
  const ProductShape shape{ProductForm::Forward, rows,          weight.size(0), inputs,
                           precision_of(x),      bias.defined()};
  return choice(shape, queue.device).forward(queue, x.view({rows, inputs}), weight, bias);
}

at::Tensor Products::input_gradient(const Queue& queue, const at::Tensor& gradient,
                                    const at::Tensor& weight, double scale) const {
  const std::int64_t inputs = weight.size(1);
  const std::int64_t outputs = weight.size(0);
  const std::int64_t rows = gradient.numel() / outputs;
  const ProductShape shape{ProductForm::InputGradient, rows, outputs, inputs,
                           precision_of(gradient)};
  at::Tensor result = at::empty({rows, inputs}, gradient.options());
  choice(shape, queue.device)
      .input_gradient(queue, gradient.view({rows, outputs}), weight, result, scale);
  return result;
}

void Products::weight_gradient(const Queue& queue, const at::Tensor& gradient, const at::Tensor& x,
                               at::Tensor target, bool accumulate, double scale) const {
  const std::int64_t outputs = gradient.size(-1);
  const std::int64_t inputs = x.size(-1);
  const std::int64_t rows = x.numel() / inputs;
  const ProductShape shape{ProductForm::WeightGradient, rows, outputs, inputs, precision_of(x)};
  at::Tensor matrix = target.view({outputs, inputs});
  choice(shape, queue.device)
      .weight_gradient(queue, gradient.view({rows, outputs}), x.view({rows, inputs}), matrix,
                       accumulate, scale);
}

}  // namespace garonne::nn
