#include "plan/program/lasting_home.hpp"

#include <fmt/format.h>

#include <cstddef>

namespace garonne::plan {

std::vector<int> lasting_homes(const Program& program) {
  const auto count = static_cast<int>(program.buffers.size());
  std::vector<int> homes(program.buffers.size(), -1);
  const auto home = [&](int id) -> int& { return homes[static_cast<std::size_t>(id)]; };
  for (int id = 0; id < count; ++id) {
    const Buffer& buffer = program.buffers[static_cast<std::size_t>(id)];
    if (buffer.live_at_start && buffer.live_at_end) home(id) = id;
  }
  for (const Instruction& instruction : program.instructions) {
    const Arguments& arguments = instruction.arguments;
    // What is updated on the host and never moves.
    for (const StandIn& one : arguments.stand_ins) {
      if (one.buffer < 0 || one.buffer >= count || one.on_host < 0 || one.on_host >= count)
        continue;
      if (home(one.buffer) < 0) home(one.buffer) = home(one.on_host);
    }
    if (!is_copy(instruction.operation) || arguments.inputs.size() != 1) continue;
    const int from = arguments.inputs[0];
    const int to = arguments.output;
    if (from < 0 || from >= count || to < 0 || to >= count) continue;
    if (home(to) < 0) home(to) = home(from);
  }
  return homes;
}

std::string name_below(const std::string& name, Tier tier) {
  return fmt::format("{}@{}", name, to_string(tier));
}

std::string name_on_device(const Buffer& buffer) {
  const std::string suffix = name_below("", buffer.tier);
  if (buffer.tier == Tier::Device || !buffer.name.ends_with(suffix)) return buffer.name;
  return buffer.name.substr(0, buffer.name.size() - suffix.size());
}

}  // namespace garonne::plan
