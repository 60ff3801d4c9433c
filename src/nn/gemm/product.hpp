// Matrix products of linear layers by the fastest library of this machine, chosen by shape.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/device.hpp"
#include "base/precision.hpp"
#include "nn/node.hpp"

namespace garonne::nn {

enum class ProductLibrary { Mkl, OneDnn, OpenBlas };

// The three products of a linear layer with weight [n, k] and m rows.
enum class ProductForm {
  Forward,         // y [m, n] = x [m, k] · Wᵀ
  InputGradient,   // dx [m, k] = dy [m, n] · W
  WeightGradient,  // dW [n, k] = dyᵀ · x
};

struct ProductShape {
  ProductForm form = ProductForm::Forward;
  std::int64_t rows = 0;     // m
  std::int64_t outputs = 0;  // n
  std::int64_t inputs = 0;   // k
  Precision precision = Precision::Float32;
};

// As "forward float32 2048x1536x384" (m, n, k).
std::string product_key(const ProductShape& shape);
std::string library_name(ProductLibrary library);

// Libraries that can do this product in this process.
std::vector<ProductLibrary> product_candidates(const ProductShape& shape);

// Which library does which product. A product that is not in the table goes to the tensor library's
// own (MKL on CPUs). Values, not state: copied freely, read by all nodes.
class Products {
 public:
  void choose(const ProductShape& shape, ProductLibrary library);
  ProductLibrary choice(const ProductShape& shape) const;
  bool has(const ProductShape& shape) const;

  // {"forward float32 2048x1536x384": "oneDNN", …}
  nlohmann::ordered_json to_json() const;
  // Throws ConfigError for a library that is not known or not in this process.
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
  std::map<std::string, ProductLibrary> choices_;
};

// What the products of a linear layer take beside inputs and results, an upper bound by shape: the
// workspace of bfloat16 products (oneDNN copies a transposed left side and the right side in blocks
// and sums in float32, for each thread; found by measuring), the bfloat16 weight gradient before it
// is added, and the workspace of the float32 forward where oneDNN does it. Zero otherwise.
struct ProductTransients {
  std::int64_t forward_bytes = 0;
  std::int64_t input_gradient_bytes = 0;
  std::int64_t weight_gradient_bytes = 0;
};
ProductTransients product_transients(const Declaration& declaration, std::int64_t rows,
                                     std::int64_t outputs, std::int64_t inputs);

// Workspace of oneDNN's float32 forward, an upper bound found by measuring: the weights in blocks
// of 64 outputs, for each thread. A library that takes more is not chosen
// (exec/profile/profile.cpp).
std::int64_t float32_workspace_bytes(const Declaration& declaration, std::int64_t inputs);

// Workspace of one bfloat16 product [m, k] · [k, n].
std::int64_t low_precision_workspace_bytes(const Declaration& declaration, std::int64_t m,
                                           std::int64_t n, std::int64_t k, bool transposed_left);

}  // namespace garonne::nn
