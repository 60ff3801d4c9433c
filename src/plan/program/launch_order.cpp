#include "plan/program/launch_order.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "base/error.hpp"
#include "base/index.hpp"
#include "plan/program/replay.hpp"

namespace garonne::plan {
namespace {

// (group, members, from, to, lane); the last three are of messages.
using Stream = std::tuple<GroupAxis, std::vector<int>, int, int, int>;

struct Kernel {
  int instruction = -1;
  int put = 0;      // Compute has carried out so many instructions when it may start
  int before = -1;  // of its stream
  int meeting = -1;
};

struct LaunchMeeting {
  int wanted = 0;
  int started = 0;
};

struct Rank {
  int carried_out = 0;  // instructions, by Compute
  std::size_t started = 0;
  std::vector<Kernel> kernels;          // in the order in which they are put
  std::vector<std::vector<int>> needs;  // by instruction: kernels that Compute waits for there
};

class LaunchOrder {
 public:
  LaunchOrder(const std::vector<Program>& programs, int lane_numbers)
      : programs_(programs), lane_numbers_(lane_numbers), ranks_(programs.size()) {
    for (const Program& program : programs_) numbers_.insert(program.rank);
    for (std::size_t rank = 0; rank < programs_.size(); ++rank) enrol(rank);
  }

  void run() {
    bool moved = true;
    while (moved) {
      moved = false;
      for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
        while (step(rank)) moved = true;
      }
    }
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) expect_at_end(rank);
  }

 private:
  void enrol(std::size_t number) {
    const auto& instructions = programs_[number].instructions;
    Rank& rank = ranks_[number];
    rank.needs.resize(instructions.size());
    std::vector<std::vector<int>> kernels_of(instructions.size());  // of copies: what they follow
    std::map<Stream, int> last;
    std::map<Stream, int> count;
    for (std::size_t i = 0; i < instructions.size(); ++i) {
      const Instruction& instruction = instructions[i];
      if (instruction.operation == Operation::Wait)
        rank.needs[i] = kernels_of.at(as_index(instruction.completes));
      std::vector<int> followed;
      for (const int earlier : instruction.after) {
        const auto& kernels = kernels_of.at(as_index(earlier));
        followed.insert(followed.end(), kernels.begin(), kernels.end());
      }
      if (!instruction.channel) {
        kernels_of[i] = std::move(followed);
        continue;
      }
      const bool blocks = instruction.lane == Lane::Compute;
      const Stream stream = stream_of(programs_[number].rank, instruction);
      const auto before = last.try_emplace(stream, -1).first;
      // A sum is gathered behind the kernels that made it.
      const int kernels = instruction.operation == Operation::AllReduce ? 2 : 1;
      for (int k = 0; k < kernels; ++k) {
        rank.kernels.push_back({.instruction = static_cast<int>(i),
                                .put = static_cast<int>(i) + (blocks ? 0 : 1),
                                .before = before->second,
                                .meeting = meeting_of(stream, count[stream]++)});
        before->second = static_cast<int>(rank.kernels.size()) - 1;
      }
      kernels_of[i] = {before->second};
      rank.needs[i] = blocks ? kernels_of[i] : std::move(followed);
    }
  }

  Stream stream_of(int rank, const Instruction& instruction) const {
    const Channel& channel = *instruction.channel;
    if (!is_message(instruction.operation)) return {channel.group, channel.members, -1, -1, -1};
    const int peer = channel.members.at(as_index(channel.peer));
    const bool sends = instruction.operation == Operation::Send;
    return {channel.group, channel.members, sends ? rank : peer, sends ? peer : rank,
            channel.tag % lane_numbers_};
  }

  int meeting_of(const Stream& stream, int number) {
    const auto [found, fresh] =
        meeting_numbers_.try_emplace({stream, number}, static_cast<int>(meetings_.size()));
    if (fresh) {
      const auto& [group, members, from, to, lane] = stream;
      const auto is_there = [&](int rank) { return numbers_.contains(rank); };
      const auto wanted = lane < 0 ? std::count_if(members.begin(), members.end(), is_there)
                                   : (is_there(from) ? 1 : 0) + (is_there(to) ? 1 : 0);
      meetings_.push_back({.wanted = static_cast<int>(wanted)});
    }
    return found->second;
  }

  bool is_complete(const Rank& rank, int kernel) const {
    const LaunchMeeting& meeting = meetings_[as_index(rank.kernels[as_index(kernel)].meeting)];
    return meeting.started == meeting.wanted;
  }

  // Whether anything moved.
  bool step(std::size_t number) {
    Rank& rank = ranks_[number];
    bool moved = false;
    const auto goes_on = [&] {
      const auto& needs = rank.needs[as_index(rank.carried_out)];
      return std::all_of(needs.begin(), needs.end(),
                         [&](int kernel) { return is_complete(rank, kernel); });
    };
    while (as_index(rank.carried_out) < rank.needs.size() && goes_on()) {
      ++rank.carried_out;
      moved = true;
    }
    const auto starts = [&](const Kernel& kernel) {
      return kernel.put <= rank.carried_out &&
             (kernel.before < 0 || is_complete(rank, kernel.before));
    };
    while (rank.started < rank.kernels.size() && starts(rank.kernels[rank.started])) {
      ++meetings_[as_index(rank.kernels[rank.started].meeting)].started;
      ++rank.started;
      moved = true;
    }
    return moved;
  }

  void expect_at_end(std::size_t number) const {
    const Rank& rank = ranks_[number];
    if (as_index(rank.carried_out) == rank.needs.size() && rank.started == rank.kernels.size())
      return;
    const auto& instructions = programs_[number].instructions;
    const auto described = [&](const Kernel& kernel) {
      return describe(instructions[as_index(kernel.instruction)]);
    };
    std::string reason =
        fmt::format("on rank {}: waits over NCCL in a circle", programs_[number].rank);
    if (rank.started < rank.kernels.size()) {
      const Kernel& held = rank.kernels[rank.started];
      if (held.before >= 0 && !is_complete(rank, held.before)) {
        reason += fmt::format(
            ": kernels start in the order in which they are put, and {} stands behind {} of its "
            "own lane",
            described(held), described(rank.kernels[as_index(held.before)]));
      }
    }
    const int at = std::min(rank.carried_out, static_cast<int>(instructions.size()) - 1);
    throw ReplayError(at, describe(instructions[as_index(at)]), reason);
  }

  const std::vector<Program>& programs_;
  const int lane_numbers_;
  std::set<int> numbers_;  // of the ranks that are there
  std::vector<Rank> ranks_;
  std::map<std::pair<Stream, int>, int> meeting_numbers_;  // by stream, and number in it
  std::vector<LaunchMeeting> meetings_;
};

}  // namespace

void check_launch_order(const std::vector<Program>& programs, int lane_numbers) {
  LaunchOrder(programs, lane_numbers).run();
}

}  // namespace garonne::plan
