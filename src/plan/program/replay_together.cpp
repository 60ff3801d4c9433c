#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <tuple>

#include "base/index.hpp"
#include "plan/program/disk_copies.hpp"
#include "plan/program/lane_clock.hpp"
#include "plan/program/message_check.hpp"
#include "plan/program/passes_overlap.hpp"
#include "plan/program/replay.hpp"
#include "plan/program/shared_disk.hpp"

namespace garonne::plan {
namespace {

bool same_channel(const Channel& a, const Channel& b) {
  return a.kind == b.kind && a.group == b.group && a.members == b.members && a.tag == b.tag &&
         a.bytes == b.bytes && a.wire == b.wire;
}

[[noreturn]] void fail(const std::vector<Program>& programs, int rank, int i,
                       const std::string& reason) {
  throw ReplayError(i, describe(programs[as_index(rank)].instructions[as_index(i)]),
                    fmt::format("on rank {}: {}", rank, reason));
}

// Collectives of one group in the same order, with the same bytes, on every member.
void check_collectives(const std::vector<Program>& programs) {
  // (group, members) -> for each member, its collectives in order.
  std::map<std::pair<GroupAxis, std::vector<int>>,
           std::map<int, std::vector<std::pair<int, const Channel*>>>>
      groups;
  for (int rank = 0; rank < static_cast<int>(programs.size()); ++rank) {
    const Program& program = programs[as_index(rank)];
    for (int i = 0; i < static_cast<int>(program.instructions.size()); ++i) {
      const Instruction& instruction = program.instructions[as_index(i)];
      if (!instruction.channel) continue;
      const auto& members = instruction.channel->members;
      if (std::find(members.begin(), members.end(), rank) == members.end())
        fail(programs, rank, i, fmt::format("rank {} is no member of its group", rank));
      if (is_message(instruction.operation)) continue;
      groups[{instruction.channel->group, members}][rank].emplace_back(i, &*instruction.channel);
    }
  }
  // Of a rotated step they meet without the others, too.
  const auto of_previous_step = [&](int rank, int i) {
    return programs[as_index(rank)].instructions[as_index(i)].of_previous_step;
  };
  for (const auto& [group, by_rank] : groups) {
    const auto& first = by_rank.begin()->second;
    for (const int member : group.second) {
      const auto found = by_rank.find(member);
      const std::size_t count = found == by_rank.end() ? 0 : found->second.size();
      for (std::size_t k = 0; k < std::max(count, first.size()); ++k) {
        const int leader = by_rank.begin()->first;
        if (k < count && k < first.size() &&
            same_channel(*found->second[k].second, *first[k].second) &&
            of_previous_step(member, found->second[k].first) ==
                of_previous_step(leader, first[k].first))
          continue;
        const bool here = k < count;
        const int rank = here ? member : by_rank.begin()->first;
        fail(programs, rank, here ? found->second[k].first : first[k].first,
             fmt::format("collective {} of group {} meets none like it on rank {}", k,
                         to_string(group.first), here ? by_rank.begin()->first : member));
      }
    }
  }
}

// Where a communication stands: who has come to it, and when all had.
struct Meeting {
  int came = 0;
  int wanted = 2;
  double latest = 0;
  double seconds = 0;
  int link = -1;  // of a message

  bool is_complete() const { return came == wanted; }
};

// What runs beside Compute.
struct Started {
  double end = 0;     // of what meets nobody
  double queued = 0;  // seconds for which its lane was taken
};

// An instruction that was issued and has not started, since what it follows is still open.
struct Issued {
  int instruction = -1;
  double at = 0;
};

// One rank on its way through its Program.
struct Walk {
  int next = 0;  // instruction
  LaneClock clock;
  std::vector<int> meeting_of;     // by instruction; -1 = it meets nobody
  std::map<int, Started> started;  // by instruction
  std::vector<Issued> issued;
  WaitedSeconds waited;
  int arrived = -1;     // the blocking instruction that it has come to last
  int stands_for = -1;  // the instruction beside Compute that this stands still for
};

// Runs all ranks at once: a message or a collective goes on its way when all its ends are there.
// The lanes of a rank are lines of its clock; messages pass beside them, one after the other from a
// rank to another.
class Meetings {
 public:
  // `disk`: null where copies take the seconds of their instructions.
  Meetings(const std::vector<Program>& programs, const Overlap& overlap, const SharedDisk* disk)
      : programs_(programs), overlap_(overlap), walks_(programs.size()) {
    if (disk != nullptr) disk_copies_.emplace(*disk);
    for (std::size_t rank = 0; rank < programs.size(); ++rank)
      walks_[rank].meeting_of.assign(programs[rank].instructions.size(), -1);
    enrol();
  }

  // Until all ranks are done. How long copies take depends on who else copies: nobody waits for one
  // before everybody has come so far as to wait for something.
  void run() {
    do {
      bool moved = true;
      while (moved) {
        moved = false;
        for (int rank = 0; rank < static_cast<int>(programs_.size()); ++rank) {
          while (step(rank)) moved = true;
        }
      }
    } while (end_a_copy());
    for (int rank = 0; rank < static_cast<int>(programs_.size()); ++rank) {
      const int next = walks_[as_index(rank)].next;
      if (as_index(next) == programs_[as_index(rank)].instructions.size()) continue;
      fail(programs_, rank, next, "never comes to an end: the ranks wait in a circle");
    }
  }

  // Of a rank, once all have run.
  double seconds(std::size_t rank) const { return walks_[rank].clock.now(); }
  double launch_seconds(std::size_t rank) const { return walks_[rank].clock.launch_seconds(); }
  const WaitedSeconds& waited(std::size_t rank) const { return walks_[rank].waited; }

 private:
  // `seconds` of the wait for something that takes `link_seconds` by itself.
  static void note_wait(WaitedSeconds& waited, GroupAxis axis, double seconds,
                        double link_seconds) {
    double& link = axis == GroupAxis::Tensor     ? waited.tensor
                   : axis == GroupAxis::Pipeline ? waited.pipeline
                   : axis == GroupAxis::Data     ? waited.data
                                                 : waited.world;
    const double of_link = std::min(seconds, link_seconds);
    link += of_link;
    waited.others += seconds - of_link;
  }

  // Which instructions meet. The k-th message of a pair with one tag meets the k-th receive, the
  // k-th collective of a group the k-th of every member.
  void enrol() {
    std::map<std::tuple<int, int, int>, std::pair<std::vector<std::pair<int, int>>, std::size_t>>
        messages;
    std::map<std::tuple<GroupAxis, std::vector<int>, int>, int> collectives;
    for (int rank = 0; rank < static_cast<int>(programs_.size()); ++rank) {
      std::map<std::pair<GroupAxis, std::vector<int>>, int> count;
      const auto& instructions = programs_[as_index(rank)].instructions;
      for (int i = 0; i < static_cast<int>(instructions.size()); ++i) {
        const Instruction& instruction = instructions[as_index(i)];
        if (!instruction.channel) continue;
        const Channel& channel = *instruction.channel;
        if (instruction.operation == Operation::Send) {
          messages[{rank, peer(rank, i), channel.tag}].first.emplace_back(rank, i);
        } else if (!is_message(instruction.operation)) {
          const int number = count[{channel.group, channel.members}]++;
          const auto [found, fresh] = collectives.try_emplace(
              {channel.group, channel.members, number}, static_cast<int>(meetings_.size()));
          if (fresh) {
            meetings_.push_back(
                {0, static_cast<int>(channel.members.size()), 0, instruction.seconds});
          }
          walks_[as_index(rank)].meeting_of[as_index(i)] = found->second;
        }
      }
    }
    std::map<std::pair<int, int>, int> link_between;
    for (int rank = 0; rank < static_cast<int>(programs_.size()); ++rank) {
      const auto& instructions = programs_[as_index(rank)].instructions;
      for (int i = 0; i < static_cast<int>(instructions.size()); ++i) {
        const Instruction& instruction = instructions[as_index(i)];
        if (!instruction.channel || instruction.operation != Operation::Receive) continue;
        auto& [sends, met] = messages[{peer(rank, i), rank, instruction.channel->tag}];
        if (met == sends.size()) fail(programs_, rank, i, "no such message is sent");
        const auto [sender, at] = sends[met++];
        const Instruction& send = programs_[as_index(sender)].instructions[as_index(at)];
        if (const std::string wrong = wrong_receive(instruction, send, sender); !wrong.empty())
          fail(programs_, rank, i, wrong);
        walks_[as_index(rank)].meeting_of[as_index(i)] =
            walks_[as_index(sender)].meeting_of[as_index(at)] = static_cast<int>(meetings_.size());
        const auto [link, fresh] =
            link_between.try_emplace({sender, rank}, static_cast<int>(links_.size()));
        if (fresh) links_.emplace_back();
        meetings_.push_back({0, 2, 0, send.seconds, link->second});
      }
    }
    for (const auto& [ends, message] : messages) {
      const auto& [sends, met] = message;
      if (met < sends.size())
        fail(programs_, sends[met].first, sends[met].second, "its message is never received");
    }
  }

  int peer(int rank, int i) const {
    const Channel& channel = *programs_[as_index(rank)].instructions[as_index(i)].channel;
    if (channel.peer < 0 || as_index(channel.peer) >= channel.members.size())
      fail(programs_, rank, i, "has a peer outside its group");
    return channel.members[as_index(channel.peer)];
  }

  const Instruction& instruction_of(int rank, int i) const {
    return programs_[as_index(rank)].instructions[as_index(i)];
  }

  // Whether anything moved.
  bool step(int rank) {
    Walk& walk = walks_[as_index(rank)];
    if (start_issued(rank)) return true;
    if (walk.stands_for >= 0) {
      if (!stand_until_end(rank, walk.stands_for)) return false;
      walk.stands_for = -1;
      return true;
    }
    if (as_index(walk.next) == programs_[as_index(rank)].instructions.size()) return false;
    const Instruction& instruction = instruction_of(rank, walk.next);
    if (instruction.lane != Lane::Compute) {
      const double at = walk.clock.issue(instruction.issue_seconds);
      walk.issued.push_back({walk.next, at});
      if (!goes_on_beside(instruction)) walk.stands_for = walk.next;
      ++walk.next;
      start_issued(rank);
      if (overlap_.host == HostIssue::Waits && instruction.operation == Operation::Send)
        stand_still(walk, at + instruction.seconds);
      return true;
    }
    const int meeting = walk.meeting_of[as_index(walk.next)];
    if (meeting >= 0) {
      if (!meet(walk, as_index(meeting), instruction)) return false;
    } else if (instruction.operation == Operation::Wait) {
      if (!wait(rank, instruction)) return false;
    } else {
      if (overlap_.host == HostIssue::Waits && instruction.operation == Operation::Load)
        walk.clock.hold_host(walk.clock.now());
      walk.clock.issue(instruction.issue_seconds);
      walk.clock.compute(instruction.seconds);
    }
    ++walk.next;
    return true;
  }

  // While a message is on its way that was sent, however late its receiver is: that is left out, so
  // that two ranks that send to each other first do not wait in a circle.
  static void stand_still(Walk& walk, double until) {
    const double seconds = walk.clock.wait(until);
    note_wait(walk.waited, GroupAxis::Pipeline, seconds, seconds);
    walk.clock.hold_host(until);
  }

  // Starts what was issued and has all that it follows behind it; lanes keep their order.
  bool start_issued(int rank) {
    Walk& walk = walks_[as_index(rank)];
    std::array<bool, most_lanes> held{};
    std::vector<Issued> rest;
    for (const Issued& one : walk.issued) {
      const Instruction& instruction = instruction_of(rank, one.instruction);
      bool& lane_held = held[static_cast<std::size_t>(instruction.lane)];
      double ready = one.at;
      for (const int earlier : instruction.after) {
        const std::optional<double> end = end_of(walk, rank, earlier);
        lane_held = lane_held || !end;
        ready = std::max(ready, end.value_or(0));
      }
      if (disk_copies_ && disk_copies_->is_under_way(rank, instruction.lane)) lane_held = true;
      if (lane_held) {
        rest.push_back(one);
      } else {
        start(walk, rank, one, instruction, ready);
      }
    }
    const bool moved = rest.size() < walk.issued.size();
    walk.issued = std::move(rest);
    return moved;
  }

  static bool is_disk_copy(const Instruction& instruction) {
    return instruction.operation == Operation::DiskWrite ||
           instruction.operation == Operation::DiskRead;
  }

  // The copy that ends first; false where none is under way.
  bool end_a_copy() {
    if (!disk_copies_) return false;
    const std::optional<DiskCopies::End> end = disk_copies_->next();
    if (!end) return false;
    Walk& walk = walks_[as_index(end->copy.program)];
    walk.clock.line(end->copy.lane).take(end->seconds);
    walk.started[end->copy.instruction] = {end->seconds, 0};
    return true;
  }

  void start(Walk& walk, int rank, const Issued& issued, const Instruction& instruction,
             double ready) {
    if (disk_copies_ && is_disk_copy(instruction)) {
      const double begin = walk.clock.line(instruction.lane).start(ready);
      disk_copies_->begin({rank, issued.instruction, instruction.lane, begin, instruction.seconds});
      return;
    }
    const int meeting = walk.meeting_of[as_index(issued.instruction)];
    const double seconds =
        meeting >= 0 ? meetings_[as_index(meeting)].seconds : instruction.seconds;
    Started& started = walk.started[issued.instruction];
    double begin = ready;
    if (!is_message(instruction.operation)) {
      Line& line = walk.clock.line(instruction.lane);
      begin = line.start(ready);
      line.take(begin + seconds);
    }
    started = {begin + seconds, begin - ready};
    if (meeting >= 0) arrive(meetings_[as_index(meeting)], begin);
  }

  void arrive(Meeting& meeting, double when) {
    meeting.latest = std::max(meeting.latest, when);
    ++meeting.came;
    if (!meeting.is_complete() || meeting.link < 0) return;
    Line& link = links_[as_index(meeting.link)];
    meeting.latest = link.start(meeting.latest);
    link.take(meeting.latest + meeting.seconds);
  }

  // When an earlier instruction ends; none while that is open.
  std::optional<double> end_of(const Walk& walk, int rank, int earlier) const {
    if (instruction_of(rank, earlier).lane == Lane::Compute) return 0;
    const auto found = walk.started.find(earlier);
    if (found == walk.started.end()) return std::nullopt;
    const int number = walk.meeting_of[as_index(earlier)];
    if (number < 0) return found->second.end;
    const Meeting& meeting = meetings_[as_index(number)];
    if (!meeting.is_complete()) return std::nullopt;
    return meeting.latest + meeting.seconds;
  }

  // What Compute blocks for.
  bool meet(Walk& walk, std::size_t number, const Instruction& instruction) {
    Meeting& meeting = meetings_[number];
    if (walk.arrived != walk.next) {
      walk.arrived = walk.next;
      walk.clock.issue(instruction.issue_seconds);
      walk.clock.compute(0);
      arrive(meeting, walk.clock.now());
    }
    if (!meeting.is_complete()) return false;
    const double end = std::max(walk.clock.now(), meeting.latest) + meeting.seconds;
    const double seconds = walk.clock.wait(end);
    note_wait(walk.waited, instruction.channel->group, seconds, meeting.seconds);
    return true;
  }

  bool wait(int rank, const Instruction& instruction) {
    Walk& walk = walks_[as_index(rank)];
    const int waited = instruction.completes;
    const std::optional<double> end = end_of(walk, rank, waited);
    if (!end) return false;
    walk.clock.issue(instruction.issue_seconds);
    walk.clock.compute(instruction.seconds);
    if (overlap_.host == HostIssue::Waits && is_message(instruction_of(rank, waited).operation))
      walk.clock.hold_host(*end);
    return stand_until_end(rank, waited);
  }

  // Whether it has an end so far.
  bool stand_until_end(int rank, int waited) {
    Walk& walk = walks_[as_index(rank)];
    const std::optional<double> end = end_of(walk, rank, waited);
    if (!end) return false;
    const double seconds = walk.clock.wait(*end);
    const int number = walk.meeting_of[as_index(waited)];
    if (number < 0) return true;
    // What queues behind others of its lane waits for the link, too.
    note_wait(walk.waited, instruction_of(rank, waited).channel->group, seconds,
              meetings_[as_index(number)].seconds + walk.started.at(waited).queued);
    return true;
  }

  bool goes_on_beside(const Instruction& instruction) const {
    switch (instruction.lane) {
      case Lane::CopyOut:
      case Lane::CopyIn:
      case Lane::DiskWrite:
      case Lane::DiskRead:
        return overlap_.copies;
      case Lane::Collective:
        if (is_overlapped_collective(instruction)) return overlap_.collectives;
        // What gathers parameters goes on.
        if (instruction.operation != Operation::AllReduce &&
            instruction.operation != Operation::ReduceScatter)
          return true;
        return instruction.channel && instruction.channel->group == GroupAxis::Tensor
                   ? overlap_.collectives
                   : overlap_.reductions;
      default:
        return true;
    }
  }

  const std::vector<Program>& programs_;
  const Overlap overlap_;
  std::vector<Walk> walks_;  // by rank
  std::vector<Meeting> meetings_;
  std::vector<Line> links_;  // from a rank to another
  std::optional<DiskCopies> disk_copies_;
};

std::vector<Prediction> replay_all(const std::vector<Program>& programs, const Overlap& overlap,
                                   const SharedDisk* disk) {
  std::vector<Prediction> predictions;
  for (const auto& program : programs) predictions.push_back(replay(program));
  check_collectives(programs);
  Meetings meetings(programs, overlap, disk);
  meetings.run();
  for (std::size_t rank = 0; rank < programs.size(); ++rank) {
    predictions[rank].seconds = meetings.seconds(rank);
    predictions[rank].launch_seconds = meetings.launch_seconds(rank);
    predictions[rank].waited = meetings.waited(rank);
  }
  return predictions;
}

// Programs of a whole grid, of which these are some: groups are of those that are there.
std::vector<Program> among_themselves(std::vector<Program> stages) {
  const int count = static_cast<int>(stages.size());
  std::map<int, int> stage_by_rank;
  for (int stage = 0; stage < count; ++stage)
    stage_by_rank.emplace(stages[as_index(stage)].rank, stage);
  const auto stage_of = [&](int rank) {
    const auto found = stage_by_rank.find(rank);
    return found == stage_by_rank.end() ? -1 : found->second;
  };
  for (int stage = 0; stage < count; ++stage) {
    for (auto& instruction : stages[as_index(stage)].instructions) {
      if (!instruction.channel) continue;
      Channel& channel = *instruction.channel;
      std::vector<int> members;
      for (const int rank : channel.members) {
        if (const int other = stage_of(rank); other >= 0) members.push_back(other);
      }
      // Messages name their peer by its place in the group, which is the whole pipeline.
      if (!is_message(instruction.operation) || members.size() == channel.members.size())
        channel.members = std::move(members);
    }
  }
  return stages;
}

}  // namespace

std::vector<Prediction> replay_together(const std::vector<Program>& programs) {
  return replay_all(programs, {}, nullptr);
}

std::vector<Prediction> replay_together(const std::vector<Program>& programs,
                                        const SharedDisk& disk) {
  return replay_all(programs, {}, &disk);
}

std::vector<Prediction> replay_pipeline(std::vector<Program> stages, const Overlap& overlap) {
  return replay_all(among_themselves(std::move(stages)), overlap, nullptr);
}

std::vector<Prediction> replay_pipeline(std::vector<Program> stages, const Overlap& overlap,
                                        const SharedDisk& disk) {
  return replay_all(among_themselves(std::move(stages)), overlap, &disk);
}

}  // namespace garonne::plan
