// Default backward: autograd's, in a graph that holds neither the node's inputs nor its parameters
// nor its output. Saved tensors that live in those are kept as names (which one, sizes, strides,
// offset) and are resolved again when the backward runs; what remains is the node's private record.
// All dealings with autograd's internal interface are in this file, since they differ between
// LibTorch versions.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <vector>

#include "nn/node.hpp"

namespace garonne::nn {

// A differentiable function of inputs and parameters, in the tensor library's operations.
using Differentiable = std::function<at::Tensor(const std::vector<at::Tensor>& inputs,
                                                const std::vector<at::Tensor>& parameters)>;

// Runs `function`, fills `record` with the private slots (each storage once, in the order of
// saving) and the graph. Floating-point inputs only.
at::Tensor record_forward(const Differentiable& function, const std::vector<at::Tensor>& inputs,
                          const std::vector<at::Tensor>& parameters, Record& record);

// Which values a recorded graph reads again in its backward.
struct PinnedNames {
  std::vector<bool> inputs;
  std::vector<bool> parameters;
  bool output = false;
};
PinnedNames pinned_names(const Record& record);

// Gradients of inputs and parameters, in that order; the graph is used up. Tensors named by the
// record must be defined in `arguments`; they may be at other addresses than when the forward ran.
std::vector<at::Tensor> backward_of_record(BackwardArguments& arguments);

// Base of nodes that give only a differentiable function.
class AutogradNode : public Node {
 public:
  at::Tensor forward(const Context& context, const std::vector<at::Tensor>& inputs,
                     const std::vector<at::Tensor>& parameters, Record* record) const override;
  std::vector<at::Tensor> backward(const Context& context,
                                   BackwardArguments& arguments) const override;

 protected:
  virtual Differentiable function(const Context& context) const = 0;
};

}  // namespace garonne::nn
