#include "plan/offload/state_offload.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <utility>

#include "base/index.hpp"
#include "plan/offload/lower_buffers.hpp"
#include "plan/program/lasting_home.hpp"
#include "plan/program/program_edit.hpp"
#include "plan/program/replay.hpp"
#include "plan/program/spans.hpp"

namespace garonne::plan {
namespace {

bool may_move(const Buffer& buffer) {
  return buffer.tier == Tier::Device && buffer.live_at_start && buffer.live_at_end &&
         (buffer.kind == BufferKind::MasterParameter || buffer.kind == BufferKind::OptimizerState);
}

class StateWriter {
 public:
  StateWriter(Program& program, const std::vector<StateGroup>& groups, Tier tier,
              const TierLinks& links)
      : program_(program), groups_(groups), links_(links), spans_(spans_of(program)) {
    room_ = replay(program).during_bytes;
    for (const StateGroup& group : groups) {
      std::vector<int> below;
      for (const int buffer : group.buffers) below.push_back(put_below(program, buffer, tier));
      below_.push_back(std::move(below));
      moved_ += group.bytes;
    }
  }

  bool write(std::int64_t budget_bytes) {
    // What is free from a place on until the end.
    std::int64_t least = budget_bytes;
    for (auto during = room_.rbegin(); during != room_.rend(); ++during) {
      least = std::min(least, budget_bytes - (*during - moved_));
      *during = least;
    }
    if (!room_.empty() && room_.front() < 0) return false;
    find_starts();
    ProgramEdit edit(program_);
    for (int place = 0; place < static_cast<int>(room_.size()); ++place) {
      bring_ahead(place, edit);
      if (arrived_ < groups_.size() && groups_[arrived_].first == place && !arrive(place, edit))
        return false;
      if (updated_ < groups_.size() && groups_[updated_].update == place) leave(place, edit);
    }
    while (!leaving_.empty()) await_oldest(static_cast<int>(room_.size()), edit);
    edit.apply();
    return true;
  }

 private:
  // Begun by then, and one after the other, all of them come in time.
  void find_starts() {
    starts_.resize(groups_.size());
    double next = spans_.empty() ? 0 : spans_.back().end;
    for (std::size_t k = groups_.size(); k-- > 0;) {
      double seconds = 0;
      for (const int buffer : groups_[k].buffers)
        seconds += message_seconds(program_.buffers[as_index(buffer)].bytes, links_.in);
      next = std::min(next, spans_[as_index(groups_[k].first)].begin) - seconds;
      starts_[k] = next;
    }
  }

  bool has_room(std::size_t group, int place) const {
    return here_ + groups_[group].bytes <= room_[as_index(place)];
  }

  void bring_ahead(int place, ProgramEdit& edit) {
    while (brought_ < groups_.size() && starts_[brought_] < spans_[as_index(place)].end &&
           has_room(brought_, place))
      bring(place, edit);
  }

  void bring(int place, ProgramEdit& edit) {
    const StateGroup& group = groups_[brought_];
    std::vector<int> copies;
    for (std::size_t k = 0; k < group.buffers.size(); ++k) {
      copies.push_back(edit.insert_before(
          place, copy_instruction(program_, below_[brought_][k], group.buffers[k], links_.in)));
    }
    coming_.push_back(std::move(copies));
    here_ += group.bytes;
    ++brought_;
  }

  bool arrive(int place, ProgramEdit& edit) {
    while (brought_ <= arrived_) {
      if (has_room(brought_, place)) {
        bring(place, edit);
      } else if (leaving_.empty()) {
        return false;
      } else {
        await_oldest(place, edit);
      }
    }
    for (const int number : coming_[arrived_]) edit.insert_before(place, wait(number, -1));
    // What follows comes while this one is computed.
    while (brought_ < groups_.size() && !has_room(brought_, place) && !leaving_.empty())
      await_oldest(place, edit);
    bring_ahead(place, edit);
    ++arrived_;
    return true;
  }

  void leave(int place, ProgramEdit& edit) {
    const StateGroup& group = groups_[updated_];
    for (std::size_t k = 0; k < group.buffers.size(); ++k) {
      const int number = edit.insert_after(place, copy_back(group.buffers[k], below_[updated_][k]));
      leaving_.emplace_back(number, group.buffers[k]);
    }
    ++updated_;
  }

  void await_oldest(int place, ProgramEdit& edit) {
    const auto [number, buffer] = leaving_.front();
    leaving_.pop_front();
    edit.insert_before(place, wait(number, buffer));
    here_ -= program_.buffers[as_index(buffer)].bytes;
  }

  // Over what is there.
  Instruction copy_back(int from, int to) const {
    Instruction instruction = copy_instruction(program_, from, to, links_.out);
    instruction.reads.push_back(to);
    return instruction;
  }

  Instruction wait(int copy, int freed) const {
    Instruction instruction;
    instruction.operation = Operation::Wait;
    instruction.node = "states";
    instruction.completes = copy;
    if (freed >= 0) instruction.frees = {freed};
    return instruction;
  }

  Program& program_;
  const std::vector<StateGroup>& groups_;
  const TierLinks& links_;
  const std::vector<Span> spans_;
  std::vector<std::int64_t> room_;       // by place
  std::vector<std::vector<int>> below_;  // by group
  std::vector<double> starts_;           // by group
  std::int64_t moved_ = 0;
  std::size_t brought_ = 0;  // groups
  std::size_t arrived_ = 0;
  std::size_t updated_ = 0;
  std::int64_t here_ = 0;                    // bytes that have come and not gone
  std::vector<std::vector<int>> coming_;     // by group: copies
  std::deque<std::pair<int, int>> leaving_;  // copies, and what they free
};

}  // namespace

std::vector<StateGroup> state_groups(const Program& program, std::int64_t least_bytes) {
  constexpr int nobody = -1;
  constexpr int others = -2;
  // By bucket: what is summed for its update uses the same.
  std::map<int, int> update_of;
  std::map<int, int> sums_of;
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    if (instruction.operation == Operation::Update)
      update_of[instruction.bucket] = static_cast<int>(i);
    if (instruction.operation == Operation::SumTensors)
      sums_of.try_emplace(instruction.bucket, static_cast<int>(i));
  }
  const auto place_of = [&](std::size_t i) {
    const Instruction& instruction = program.instructions[i];
    if (instruction.operation == Operation::Update) return static_cast<int>(i);
    if (instruction.operation != Operation::SumTensors) return others;
    const auto update = update_of.find(instruction.bucket);
    return update == update_of.end() ? others : update->second;
  };
  std::vector<int> user(program.buffers.size(), nobody);
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    const int place = place_of(i);
    for (const auto& ids : {instruction.reads, instruction.writes}) {
      for (const int id : ids) {
        int& one = user[as_index(id)];
        one = one == nobody || one == place ? place : others;
      }
    }
  }
  std::map<int, StateGroup> groups;  // by place
  for (std::size_t id = 0; id < program.buffers.size(); ++id) {
    const Buffer& buffer = program.buffers[id];
    if (user[id] < 0 || !may_move(buffer) || buffer.bytes < std::max<std::int64_t>(least_bytes, 1))
      continue;
    StateGroup& group = groups[user[id]];
    group.update = group.first = user[id];
    const int bucket = program.instructions[as_index(group.update)].bucket;
    if (const auto sums = sums_of.find(bucket); sums != sums_of.end()) group.first = sums->second;
    group.buffers.push_back(static_cast<int>(id));
    group.bytes += buffer.bytes;
  }
  std::vector<StateGroup> all;
  for (auto& [place, group] : groups) all.push_back(std::move(group));
  return all;
}

std::optional<Program> with_states_below(Program program, const std::vector<StateGroup>& groups,
                                         Tier tier, const TierLinks& links,
                                         std::int64_t budget_bytes) {
  if (!StateWriter(program, groups, tier, links).write(budget_bytes)) return std::nullopt;
  set_replayed(program);
  return program;
}

}  // namespace garonne::plan
