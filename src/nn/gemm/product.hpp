// Matrix products of linear layers by the fastest library of this machine, chosen by shape.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "base/device.hpp"
#include "base/error.hpp"
#include "nn/gemm/product_library.hpp"

namespace garonne::nn {

// Which library does which product. A product that is not in the table, or there with a library of
// another kind of device, goes to the default one. Values, not state: copied freely, read by all
// nodes.
class Products {
 public:
  void choose(const ProductShape& shape, const ProductLibrary& library);
  const ProductLibrary& choice(const ProductShape& shape, DeviceKind kind) const;
  bool has(const ProductShape& shape) const;

  // {"forward float32 2048x1536x384": "oneDNN", …}
  nlohmann::ordered_json to_json() const;
  // For a library that is not known or not in this process; none where all can be used.
  static std::optional<ConfigError> refusal_of(const nlohmann::json& json);
  // Throws that.
  static Products from_json(const nlohmann::json& json);

  // y = x · Wᵀ, in a new storage. `bias` may be undefined.
  at::Tensor forward(const Queue& queue, const at::Tensor& x, const at::Tensor& weight,
                     const at::Tensor& bias) const;
  // dx = scale · dy · W, in a new storage.
  at::Tensor input_gradient(const Queue& queue, const at::Tensor& gradient,
                            const at::Tensor& weight, double scale = 1) const;
  // target (+)= scale · dyᵀ · x; target is flat, n·k elements, in the gradient type.
  void weight_gradient(const Queue& queue, const at::Tensor& gradient, const at::Tensor& x,
                       at::Tensor target, bool accumulate, double scale = 1) const;

 private:
  std::map<std::string, const ProductLibrary*> choices_;
};

// Such choices without those of libraries of another kind of device, which say nothing about this
// one: a run may go on elsewhere. Names that no library has stay, to be refused.
nlohmann::json choices_for(DeviceKind kind, const nlohmann::json& choices);

// Whether this processor has instructions for products of bfloat16, which oneDNN uses.
bool multiplies_bfloat16();

}  // namespace garonne::nn
