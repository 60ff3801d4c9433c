#include "plan/model/group_axis.hpp"

namespace garonne::plan {

std::string_view to_string(GroupAxis axis) {
  switch (axis) {
    case GroupAxis::Tensor:
      return "tensor";
    case GroupAxis::Data:
      return "data";
    case GroupAxis::Pipeline:
      return "pipeline";
    case GroupAxis::Tied:
      return "tied";
    case GroupAxis::World:
      return "world";
  }
  return "unknown";
}

}  // namespace garonne::plan
