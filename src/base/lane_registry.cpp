#include "base/lane.hpp"

namespace garonne {

std::span<const LaneKind> lanes() {
  return built_in_lanes;
}

}  // namespace garonne
