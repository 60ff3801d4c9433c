// Steps of a rank one after the other, as one list.
#pragma once

#include <limits>
#include <map>
#include <utility>

#include "plan/program/program.hpp"

namespace garonne::plan::test {

// The instructions of one step after those of another, on the same buffers. What names one that is
// not among them names none.
template <typename Chosen>
void append_step(const Program& step, const Chosen& is_in, Program& row) {
  std::map<int, int> place_of;
  const auto renamed = [&](int number) {
    const auto found = place_of.find(number);
    return found == place_of.end() ? std::numeric_limits<int>::max() : found->second;
  };
  for (std::size_t i = 0; i < step.instructions.size(); ++i) {
    Instruction one = step.instructions[i];
    if (!is_in(one)) continue;
    place_of[static_cast<int>(i)] = static_cast<int>(row.instructions.size());
    for (int& earlier : one.after) earlier = renamed(earlier);
    if (one.completes >= 0) one.completes = renamed(one.completes);
    one.of_previous_step = false;
    row.instructions.push_back(std::move(one));
  }
}

// So many steps; of a rotated one as they are carried out, with what remains after the last.
inline Program in_a_row(const Program& step, int times) {
  Program row = step;
  row.instructions.clear();
  for (Buffer& buffer : row.buffers) buffer.carried = false;
  for (int time = 0; time < times; ++time) {
    append_step(
        step, [&](const Instruction& one) { return time > 0 || !one.of_previous_step; }, row);
  }
  append_step(
      step, [](const Instruction& one) { return one.of_previous_step; }, row);
  return row;
}

}  // namespace garonne::plan::test
