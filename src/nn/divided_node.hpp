// What nodes share that are divided at a collective over the tensor group in a pass or in both.
#pragma once

#include <cstdint>
#include <vector>

#include "nn/node.hpp"

namespace garonne::nn {

class DividedNode : public Node {
 public:
  // Of a pass that is divided: throw InternalError. A pass without a collective overrides its own.
  at::Tensor forward(const Context& context, const std::vector<at::Tensor>& inputs,
                     const std::vector<at::Tensor>& parameters, Record* record) const override;
  std::vector<at::Tensor> backward(const Context& context,
                                   BackwardArguments& arguments) const override;

 protected:
  // Throws InternalError in a tensor group of another size.
  static void expect_members(const Context& context, std::int64_t members);
};

}  // namespace garonne::nn
