#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "plan/program/replay.hpp"

namespace garonne::plan {
namespace {

std::size_t index(int id) {
  return static_cast<std::size_t>(id);
}

bool is_message(const Instruction& instruction) {
  return instruction.operation == Operation::Send || instruction.operation == Operation::Receive;
}

bool same_channel(const Channel& a, const Channel& b) {
  return a.kind == b.kind && a.group == b.group && a.members == b.members && a.tag == b.tag &&
         a.bytes == b.bytes;
}

[[noreturn]] void fail(const std::vector<Program>& programs, int rank, int i,
                       const std::string& reason) {
  throw ReplayError(i, describe(programs[index(rank)].instructions[index(i)]),
                    fmt::format("on rank {}: {}", rank, reason));
}

// Collectives of one group in the same order, with the same bytes, on every member.
void check_collectives(const std::vector<Program>& programs) {
  // (group, members) -> for each member, its collectives in order.
  std::map<std::pair<GroupAxis, std::vector<int>>,
           std::map<int, std::vector<std::pair<int, const Channel*>>>>
      groups;
  for (int rank = 0; rank < static_cast<int>(programs.size()); ++rank) {
    const Program& program = programs[index(rank)];
    for (int i = 0; i < static_cast<int>(program.instructions.size()); ++i) {
      const Instruction& instruction = program.instructions[index(i)];
      if (!instruction.channel) continue;
      const auto& members = instruction.channel->members;
      if (std::find(members.begin(), members.end(), rank) == members.end())
        fail(programs, rank, i, fmt::format("rank {} is no member of its group", rank));
      if (is_message(instruction)) continue;
      groups[{instruction.channel->group, members}][rank].emplace_back(i, &*instruction.channel);
    }
  }
  for (const auto& [group, by_rank] : groups) {
    const auto& first = by_rank.begin()->second;
    for (const int member : group.second) {
      const auto found = by_rank.find(member);
      const std::size_t count = found == by_rank.end() ? 0 : found->second.size();
      for (std::size_t k = 0; k < std::max(count, first.size()); ++k) {
        if (k < count && k < first.size() &&
            same_channel(*found->second[k].second, *first[k].second))
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
};

// Runs all ranks at once: a message or a collective goes on its way when all its ends are there.
// Each rank has one communication lane for collectives; messages pass beside it, one after the
// other from a rank to another.
class Meetings {
 public:
  explicit Meetings(const std::vector<Program>& programs)
      : programs_(programs),
        next_(programs.size(), 0),
        now_(programs.size(), 0),
        lane_(programs.size(), 0),
        meeting_of_(programs.size()),
        waited_(programs.size()),
        arrived_(programs.size(), -1) {
    for (std::size_t rank = 0; rank < programs.size(); ++rank)
      meeting_of_[rank].assign(programs[rank].instructions.size(), -1);
    enrol();
  }

  // When each rank is done.
  std::vector<double> run() {
    bool moved = true;
    while (moved) {
      moved = false;
      for (int rank = 0; rank < static_cast<int>(programs_.size()); ++rank) {
        while (step(rank)) moved = true;
      }
    }
    for (int rank = 0; rank < static_cast<int>(programs_.size()); ++rank) {
      if (index(next_[index(rank)]) == programs_[index(rank)].instructions.size()) continue;
      fail(programs_, rank, next_[index(rank)],
           "never comes to an end: the ranks wait in a circle");
    }
    return now_;
  }

  // Of each rank, once it has run.
  const std::vector<WaitedSeconds>& waited() const { return waited_; }

 private:
  // `seconds` of the wait for something that takes `link_seconds` by itself.
  void note_wait(int rank, const Channel& channel, double seconds, double link_seconds) {
    WaitedSeconds& waited = waited_[index(rank)];
    double& link = channel.group == GroupAxis::Tensor     ? waited.tensor
                   : channel.group == GroupAxis::Pipeline ? waited.pipeline
                   : channel.group == GroupAxis::Data     ? waited.data
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
      const auto& instructions = programs_[index(rank)].instructions;
      for (int i = 0; i < static_cast<int>(instructions.size()); ++i) {
        const Instruction& instruction = instructions[index(i)];
        if (!instruction.channel) continue;
        const Channel& channel = *instruction.channel;
        if (instruction.operation == Operation::Send) {
          messages[{rank, peer(rank, i), channel.tag}].first.emplace_back(rank, i);
        } else if (!is_message(instruction)) {
          const int number = count[{channel.group, channel.members}]++;
          const auto [found, fresh] = collectives.try_emplace(
              {channel.group, channel.members, number}, static_cast<int>(meetings_.size()));
          if (fresh) {
            meetings_.push_back(
                {0, static_cast<int>(channel.members.size()), 0, instruction.seconds});
          }
          meeting_of_[index(rank)][index(i)] = found->second;
        }
      }
    }
    std::map<std::pair<int, int>, int> link_between;
    for (int rank = 0; rank < static_cast<int>(programs_.size()); ++rank) {
      const auto& instructions = programs_[index(rank)].instructions;
      for (int i = 0; i < static_cast<int>(instructions.size()); ++i) {
        const Instruction& instruction = instructions[index(i)];
        if (!instruction.channel || instruction.operation != Operation::Receive) continue;
        auto& [sends, met] = messages[{peer(rank, i), rank, instruction.channel->tag}];
        if (met == sends.size()) fail(programs_, rank, i, "no such message is sent");
        const auto [sender, at] = sends[met++];
        const Instruction& send = programs_[index(sender)].instructions[index(at)];
        if (send.channel->bytes != instruction.channel->bytes) {
          fail(programs_, rank, i,
               fmt::format("expects {} B where rank {} sends {} B", instruction.channel->bytes,
                           sender, send.channel->bytes));
        }
        meeting_of_[index(rank)][index(i)] = meeting_of_[index(sender)][index(at)] =
            static_cast<int>(meetings_.size());
        const auto [link, fresh] =
            link_between.try_emplace({sender, rank}, static_cast<int>(link_free_.size()));
        if (fresh) link_free_.push_back(0);
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
    const Channel& channel = *programs_[index(rank)].instructions[index(i)].channel;
    if (channel.peer < 0 || index(channel.peer) >= channel.members.size())
      fail(programs_, rank, i, "has a peer outside its group");
    return channel.members[index(channel.peer)];
  }

  bool step(int rank) {
    const auto& instructions = programs_[index(rank)].instructions;
    int& next = next_[index(rank)];
    if (index(next) == instructions.size()) return false;
    const Instruction& instruction = instructions[index(next)];
    double& now = now_[index(rank)];
    const int meeting = meeting_of_[index(rank)][index(next)];
    if (meeting >= 0) {
      const bool blocks = instruction.lane == Lane::Compute;
      if (arrived_[index(rank)] != next) {
        arrived_[index(rank)] = next;
        double& lane = lane_[index(rank)];
        const double start = is_message(instruction) || blocks ? now : std::max(now, lane);
        Meeting& place = meetings_[index(meeting)];
        place.latest = std::max(place.latest, start);
        ++place.came;
        if (place.came == place.wanted && place.link >= 0) {
          double& free = link_free_[index(place.link)];
          place.latest = std::max(place.latest, free);
          free = place.latest + place.seconds;
        }
        if (!is_message(instruction) && !blocks) lane = start + place.seconds;
      }
      if (blocks) {
        const Meeting& place = meetings_[index(meeting)];
        if (place.came < place.wanted) return false;
        const double done = std::max(now, place.latest) + place.seconds;
        note_wait(rank, *instruction.channel, done - now, place.seconds);
        now = done;
      }
    } else if (instruction.operation == Operation::Wait) {
      const int waited = meeting_of_[index(rank)][index(instruction.completes)];
      if (waited >= 0) {
        const Meeting& place = meetings_[index(waited)];
        if (place.came < place.wanted) return false;
        const double done = std::max(now, place.latest + place.seconds);
        const Channel& channel = *instructions[index(instruction.completes)].channel;
        // What queues behind other reductions waits for the link, too.
        note_wait(rank, channel, done - now,
                  channel.group == GroupAxis::Data ? done - now : place.seconds);
        now = done;
      }
    } else {
      now += instruction.seconds;
    }
    ++next;
    return true;
  }

  const std::vector<Program>& programs_;
  std::vector<int> next_;     // by rank: instruction
  std::vector<double> now_;   // by rank
  std::vector<double> lane_;  // by rank: when its collectives so far are done
  std::vector<std::vector<int>> meeting_of_;
  std::vector<Meeting> meetings_;
  std::vector<double> link_free_;  // from a rank to another: when its messages so far are through
  std::vector<WaitedSeconds> waited_;  // by rank
  std::vector<int> arrived_;           // by rank: the instruction that it has come to last
};

}  // namespace

std::vector<Prediction> replay_together(const std::vector<Program>& programs) {
  std::vector<Prediction> predictions;
  for (const auto& program : programs) predictions.push_back(replay(program));
  check_collectives(programs);
  Meetings meetings(programs);
  const std::vector<double> seconds = meetings.run();
  for (std::size_t rank = 0; rank < programs.size(); ++rank) {
    predictions[rank].seconds = seconds[rank];
    predictions[rank].waited = meetings.waited()[rank];
  }
  return predictions;
}

void check_lanes(const std::vector<Program>& programs, int lane_numbers) {
  // (from, to, lane) -> tags in the order of sending.
  std::map<std::tuple<int, int, int>, std::vector<int>> sent;
  const auto peer_of = [](const Channel& channel) {
    return channel.members.at(index(channel.peer));
  };
  for (const auto& program : programs) {
    for (const auto& instruction : program.instructions) {
      if (instruction.operation != Operation::Send || !instruction.channel) continue;
      const Channel& channel = *instruction.channel;
      sent[{program.rank, peer_of(channel), channel.tag % lane_numbers}].push_back(channel.tag);
    }
  }
  for (int rank = 0; rank < static_cast<int>(programs.size()); ++rank) {
    const auto& instructions = programs[index(rank)].instructions;
    std::map<std::pair<int, int>, std::size_t> met;
    for (int i = 0; i < static_cast<int>(instructions.size()); ++i) {
      const Instruction& instruction = instructions[index(i)];
      if (instruction.operation != Operation::Receive || !instruction.channel) continue;
      const Channel& channel = *instruction.channel;
      const int lane = channel.tag % lane_numbers;
      const auto& tags = sent[{peer_of(channel), programs[index(rank)].rank, lane}];
      std::size_t& next = met[{peer_of(channel), lane}];
      if (next >= tags.size() || tags[next++] != channel.tag)
        fail(programs, rank, i, "is not the next message of its lane that is sent");
    }
  }
}

std::vector<Prediction> replay_pipeline(std::vector<Program> stages) {
  const int count = static_cast<int>(stages.size());
  std::map<int, int> stage_by_rank;
  for (int stage = 0; stage < count; ++stage)
    stage_by_rank.emplace(stages[index(stage)].rank, stage);
  const auto stage_of = [&](int rank) {
    const auto found = stage_by_rank.find(rank);
    return found == stage_by_rank.end() ? -1 : found->second;
  };
  for (int stage = 0; stage < count; ++stage) {
    for (auto& instruction : stages[index(stage)].instructions) {
      if (!instruction.channel) continue;
      Channel& channel = *instruction.channel;
      std::vector<int> members;
      for (const int rank : channel.members) {
        if (const int other = stage_of(rank); other >= 0) members.push_back(other);
      }
      // Messages name their peer by its place in the group, which is the whole pipeline.
      if (!is_message(instruction) || members.size() == channel.members.size())
        channel.members = std::move(members);
    }
  }
  return replay_together(stages);
}

}  // namespace garonne::plan
