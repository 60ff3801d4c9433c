// Libraries that multiply the matrices of linear layers, behind one interface: a new one is a file
// and a row in product_library.cpp.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/device.hpp"
#include "base/precision.hpp"
#include "nn/node.hpp"

namespace garonne::nn {

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
  // Of a forward: it is measured with one where a node of the model has one. What is chosen does
  // both.
  bool bias = false;
};

// As "forward float32 2048x1536x384" (m, n, k).
std::string product_key(const ProductShape& shape);

// Matrices are contiguous and of one type, but for the gradient of weights in bfloat16, which is
// float32. A product is asked for only where does() says so.
class ProductLibrary {
 public:
  virtual ~ProductLibrary() = default;

  // As profiles and choices.json have it.
  virtual std::string_view name() const = 0;
  // Whether it multiplies what queues of this kind compute with: on processors, which compute for
  // emulated devices, too, or on GPUs.
  virtual bool works_on(DeviceKind kind) const { return kind != DeviceKind::Cuda; }
  // What all ranks must have alike, where it is not part of this build.
  virtual std::string version() const { return "in this build"; }
  // Whether it is there in this process.
  virtual bool available() const { return true; }
  virtual bool does(const ProductShape& shape) const = 0;

  // Bytes beside operands and result, an upper bound.
  virtual std::int64_t workspace_bytes(const Declaration& declaration,
                                       const ProductShape& shape) const = 0;
  // Whether the bound is a formula found by measuring, which has to be seen to hold for a shape
  // before the library is chosen for it.
  virtual bool workspace_is_estimated() const { return false; }

  // y, in a new storage. `bias` [n] may be undefined.
  virtual at::Tensor forward(const Queue& queue, const at::Tensor& x, const at::Tensor& weight,
                             const at::Tensor& bias) const = 0;
  // result = scale · dy · W.
  virtual void input_gradient(const Queue& queue, const at::Tensor& gradient,
                              const at::Tensor& weight, at::Tensor& result, double scale) const;
  // result (+)= scale · dyᵀ · x.
  virtual void weight_gradient(const Queue& queue, const at::Tensor& gradient, const at::Tensor& x,
                               at::Tensor& result, bool accumulate, double scale) const;
};

// Those of processors, then those of GPUs.
const std::vector<const ProductLibrary*>& product_libraries();
// Null for a name that none has.
const ProductLibrary* find_product_library(std::string_view name);
// Those that can do this product on such a device in this process.
std::vector<const ProductLibrary*> product_candidates(const ProductShape& shape, DeviceKind kind);
// What does the products that nothing was chosen for.
const ProductLibrary& default_product_library(const ProductShape& shape, DeviceKind kind);

// What the products of a linear layer take beside inputs and results by whichever library, an upper
// bound by shape, and the bfloat16 weight gradient before it is added.
struct ProductTransients {
  std::int64_t forward_bytes = 0;
  std::int64_t input_gradient_bytes = 0;
  std::int64_t weight_gradient_bytes = 0;
};
ProductTransients product_transients(const Declaration& declaration, std::int64_t rows,
                                     std::int64_t outputs, std::int64_t inputs);

}  // namespace garonne::nn
