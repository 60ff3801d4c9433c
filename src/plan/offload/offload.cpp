#include "plan/offload/offload.hpp"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "base/error.hpp"
#include "base/index.hpp"
#include "plan/offload/lower_buffers.hpp"
#include "plan/program/program_edit.hpp"

namespace garonne::plan {
namespace {

bool moves(const Buffer& buffer) {
  return buffer.tier == Tier::Device && !buffer.live_at_start && !buffer.live_at_end &&
         (buffer.kind == BufferKind::Value || buffer.kind == BufferKind::Record) &&
         buffer.bytes > 0;
}

// By instruction on another lane: its Wait.
std::map<int, int> waits_of(const Program& program) {
  std::map<int, int> waits;
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    if (program.instructions[i].operation == Operation::Wait)
      waits[program.instructions[i].completes] = static_cast<int>(i);
  }
  return waits;
}

class OffloadWriter {
 public:
  OffloadWriter(Program& program, const std::map<Tier, TierLinks>& links)
      : program_(program), links_(links), edit_(program) {}

  // At one place what makes room comes first, then what takes it; waits for what comes back are
  // last, behind the beginning of copies for later.
  void add(const std::vector<Offload>& offloads) {
    std::vector<Moved> all;
    for (const Offload& offload : offloads) all.push_back(moved(offload));
    for (Moved& one : all) {
      const int place = one.offload->out_behind;
      one.out = edit_.insert_after(
          place, copy(one.buffer, one.lower, micro_batch_at(place), one.links->out));
    }
    for (const Moved& one : all)
      edit_.insert_before(one.offload->room_from, wait(one.out, one.buffer));
    for (Moved& one : all) {
      one.in = edit_.insert_before(
          one.offload->back_from,
          copy(one.lower, one.buffer, micro_batch_at(one.offload->idle.next_use), one.links->in));
    }
    for (const Moved& one : all)
      edit_.insert_before(one.offload->idle.next_use, wait(one.in, one.lower));
  }

  void write() {
    edit_.apply();
    set_replayed(program_);
  }

 private:
  struct Moved {
    const Offload* offload = nullptr;
    const TierLinks* links = nullptr;
    int buffer = -1;
    int lower = -1;
    int out = -1;  // numbers of the copies
    int in = -1;
  };

  Moved moved(const Offload& offload) {
    const IdleTime& idle = offload.idle;
    expect(idle.complete_at <= offload.out_behind && offload.out_behind <= idle.last_use,
           "an offload begins before there is anything, or when it is to have gone");
    expect(idle.last_use < offload.room_from && offload.room_from <= offload.back_from &&
               offload.back_from <= idle.next_use,
           "an offload comes back before it has gone");
    const auto links = links_.find(offload.tier);
    expect(links != links_.end(), "an offload goes to a tier without links");
    return {&offload, &links->second, idle.buffer, buffer_below(idle.buffer, offload.tier)};
  }

  int micro_batch_at(int place) const { return program_.instructions[as_index(place)].micro_batch; }

  int buffer_below(int id, Tier tier) {
    const auto [found, fresh] = below_.try_emplace({id, tier}, -1);
    if (fresh) found->second = add_below(program_, id, tier);
    return found->second;
  }

  Instruction copy(int from, int to, int micro_batch, const Link& link) const {
    Instruction instruction = copy_instruction(program_, from, to, link);
    instruction.micro_batch = micro_batch;
    return instruction;
  }

  Instruction wait(int copy, int freed) const {
    Instruction instruction;
    instruction.operation = Operation::Wait;
    instruction.node = program_.buffers[as_index(freed)].name;
    instruction.completes = copy;
    instruction.frees = {freed};
    return instruction;
  }

  Program& program_;
  const std::map<Tier, TierLinks>& links_;
  ProgramEdit edit_;
  std::map<std::pair<int, Tier>, int> below_;
};

}  // namespace

std::vector<IdleTime> idle_times(const Program& program) {
  const std::map<int, int> waits = waits_of(program);
  std::vector<int> last_use(program.buffers.size(), -1);  // -1 = it is not live
  std::vector<int> complete_at(program.buffers.size(), -1);
  std::vector<IdleTime> found;
  for (int i = 0; i < static_cast<int>(program.instructions.size()); ++i) {
    const Instruction& instruction = program.instructions[as_index(i)];
    int end = i;
    if (instruction.lane != Lane::Compute) end = waits.at(i);
    for (const auto& ids : {instruction.reads, instruction.writes}) {
      for (const int id : ids) {
        int& last = last_use[as_index(id)];
        if (last >= 0 && i > last + 1 && moves(program.buffers[as_index(id)])) {
          found.push_back({id, complete_at[as_index(id)], last, i});
          complete_at[as_index(id)] = i;
        }
        last = std::max(last, end);
      }
    }
    for (const int id : instruction.writes) complete_at[as_index(id)] = end;
    for (const int id : instruction.frees) last_use[as_index(id)] = -1;
  }
  std::sort(found.begin(), found.end(), [](const IdleTime& a, const IdleTime& b) {
    return std::tie(a.buffer, a.last_use) < std::tie(b.buffer, b.last_use);
  });
  return found;
}

Instruction copy_instruction(const Program& program, int from, int to, const Link& link) {
  const Buffer& source = program.buffers[as_index(from)];
  Instruction instruction;
  instruction.operation = copy_between(source.tier, program.buffers[as_index(to)].tier).value();
  instruction.node = source.name;
  instruction.lane = lane_of_copy(instruction.operation);
  instruction.reads = {from};
  instruction.writes = {to};
  instruction.arguments.inputs = {from};
  instruction.arguments.output = to;
  instruction.seconds = message_seconds(source.bytes, link);
  return instruction;
}

Program with_offloads(Program program, const std::vector<Offload>& offloads,
                      const std::map<Tier, TierLinks>& links) {
  OffloadWriter writer(program, links);
  writer.add(offloads);
  writer.write();
  return program;
}

}  // namespace garonne::plan
