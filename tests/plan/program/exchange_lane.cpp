#include "plan/program/exchange_lane.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "plan/program/pass_parts.hpp"
#include "plan/program/program_edit.hpp"

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

Program with_sums_in_a_row(Program program) {
  struct Sum {
    int number = -1;
    int wait = -1;
  };
  std::map<int, Sum> last;     // by buffer: of those that stand alone so far
  std::map<int, int> wait_of;  // by instruction
  std::vector<Instruction>& all = program.instructions;
  const auto number_of = [](std::size_t i) { return static_cast<int>(i); };
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].operation == Operation::Wait) wait_of[all[i].completes] = number_of(i);
  }
  ProgramEdit edit(program);
  for (std::size_t i = 0; i < all.size(); ++i) {
    Instruction& later = all[i];
    // Others use what was summed.
    const bool sums =
        later.lane == Lane::Collective && later.arguments.exchanged < 0 &&
        (later.operation == Operation::AllReduce || later.operation == Operation::ReduceScatter);
    if (!sums) {
      for (const int buffer : later.reads) last.erase(buffer);
      for (const int buffer : later.writes) last.erase(buffer);
      continue;
    }
    const int buffer = later.arguments.inputs.at(0);
    const Sum mine{number_of(i), wait_of.at(number_of(i))};
    const auto [found, first_of_two] = last.try_emplace(buffer, mine);
    if (first_of_two) continue;
    const Sum earlier = found->second;
    last.erase(found);
    later.lane = exchange_lane;
    later.after = {earlier.number};
    // The wait for the earlier one comes last, and frees what both did.
    Instruction first = all[static_cast<std::size_t>(earlier.wait)];
    Instruction& second = all[static_cast<std::size_t>(mine.wait)];
    first.frees.insert(first.frees.end(), second.frees.begin(), second.frees.end());
    second.frees.clear();
    edit.insert_after(mine.wait, std::move(first));
    edit.remove(earlier.wait);
  }
  edit.apply();
  return program;
}

}  // namespace plan::test
}  // namespace garonne
