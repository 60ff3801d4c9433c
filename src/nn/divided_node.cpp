#include "nn/divided_node.hpp"

#include "base/error.hpp"

namespace garonne::nn {

at::Tensor DividedNode::forward(const Context&, const std::vector<at::Tensor>&,
                                const std::vector<at::Tensor>&, Record*) const {
  throw InternalError("a forward is not divided at its collective");
}

std::vector<at::Tensor> DividedNode::backward(const Context&, BackwardArguments&) const {
  throw InternalError("a backward is not divided at its collective");
}

void DividedNode::expect_members(const Context& context, std::int64_t members) {
  expect(context.tensor_members == members, "a node of a cut model runs in another tensor group");
}

}  // namespace garonne::nn
