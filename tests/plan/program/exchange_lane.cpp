#include "plan/program/exchange_lane.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "plan/program/pass_parts.hpp"

namespace garonne {

// In place of base/lane_registry.cpp.
std::span<const LaneKind> lanes() {
  static constexpr auto all = [] {
    std::array<LaneKind, lane_count + 1> kinds;
    std::copy(std::begin(built_in_lanes), std::end(built_in_lanes), kinds.begin());
    kinds.back() = {plan::test::exchange_lane, "exchange", false};
    return kinds;
  }();
  return all;
}

namespace plan::test {

Program with_exchange_lane(Program program) {
  program = with_passes_beside_compute(std::move(program));
  for (Instruction& instruction : program.instructions) {
    if (is_collective(instruction.operation) && instruction.arguments.exchanged >= 0)
      instruction.lane = exchange_lane;
  }
  return program;
}

}  // namespace plan::test
}  // namespace garonne
