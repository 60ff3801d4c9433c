// The order of messages on lanes of transports that know no tags.
#include <fmt/format.h>

#include <map>
#include <tuple>
#include <utility>

#include "base/index.hpp"
#include "plan/program/replay.hpp"

namespace garonne::plan {

void check_lanes(const std::vector<Program>& programs, int lane_numbers) {
  // (from, to, lane) -> tags in the order of sending.
  std::map<std::tuple<int, int, int>, std::vector<int>> sent;
  const auto peer_of = [](const Channel& channel) {
    return channel.members.at(as_index(channel.peer));
  };
  for (const auto& program : programs) {
    for (const auto& instruction : program.instructions) {
      if (instruction.operation != Operation::Send || !instruction.channel) continue;
      const Channel& channel = *instruction.channel;
      sent[{program.rank, peer_of(channel), channel.tag % lane_numbers}].push_back(channel.tag);
    }
  }
  for (int rank = 0; rank < static_cast<int>(programs.size()); ++rank) {
    const auto& instructions = programs[as_index(rank)].instructions;
    std::map<std::pair<int, int>, std::size_t> met;
    for (int i = 0; i < static_cast<int>(instructions.size()); ++i) {
      const Instruction& instruction = instructions[as_index(i)];
      if (instruction.operation != Operation::Receive || !instruction.channel) continue;
      const Channel& channel = *instruction.channel;
      const int lane = channel.tag % lane_numbers;
      const auto& tags = sent[{peer_of(channel), programs[as_index(rank)].rank, lane}];
      std::size_t& next = met[{peer_of(channel), lane}];
      if (next >= tags.size() || tags[next++] != channel.tag)
        throw ReplayError(
            i, describe(instruction),
            fmt::format("on rank {}: is not the next message of its lane that is sent", rank));
    }
  }
}

}  // namespace garonne::plan
