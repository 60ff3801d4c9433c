#include "nn/node.hpp"

#include "base/error.hpp"

namespace garonne::nn {

at::Tensor Context::table(const std::string& name, std::int64_t bytes) const {
  if (tables == nullptr) return {};
  const auto found = tables->find(name);
  expect(found != tables->end() && found->second.numel() >= bytes,
         "the device has no table of " + name);
  return found->second.narrow(0, 0, bytes);
}

std::vector<ConstantTable> Node::tables(Precision) const {
  return {};
}

at::Tensor Node::begin(const Context&, const DividedPass&) const {
  throw InternalError("a pass of a node without collective is divided");
}

at::Tensor Node::finish(const Context&, const DividedPass&, const at::Tensor&) const {
  throw InternalError("a pass of a node without collective is divided");
}

}  // namespace garonne::nn
