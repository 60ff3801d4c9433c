#include "nn/node.hpp"

#include "base/error.hpp"

namespace garonne::nn {

at::Tensor Node::begin(const Context&, const DividedPass&) const {
  throw InternalError("a pass of a node without collective is divided");
}

at::Tensor Node::finish(const Context&, const DividedPass&, const at::Tensor&) const {
  throw InternalError("a pass of a node without collective is divided");
}

}  // namespace garonne::nn
