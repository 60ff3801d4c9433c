#include "plan/offload/host_update.hpp"

#include <algorithm>
#include <utility>

#include "base/contains.hpp"
#include "base/error.hpp"
#include "base/index.hpp"
#include "plan/offload/lower_buffers.hpp"
#include "plan/offload/offload.hpp"
#include "plan/program/program_edit.hpp"

namespace garonne::plan {
namespace {

// There for a while only, whatever the buffer of the device is.
int stand_in_on_host(Program& program, int buffer) {
  const int on_host = add_below(program, buffer, Tier::Host);
  Buffer& lower = program.buffers[as_index(on_host)];
  lower.live_at_start = false;
  lower.live_at_end = false;
  return on_host;
}

class HostUpdateWriter {
 public:
  HostUpdateWriter(Program& program, const std::vector<StateGroup>& groups, const TierLinks& links,
                   double bytes_per_second, GradientCopies when, const std::map<int, int>& pages)
      : program_(program),
        groups_(groups),
        links_(links),
        bytes_per_second_(bytes_per_second),
        when_(when),
        pages_(pages) {
    for (const StateGroup& group : groups) moved_.push_back(moved(group));
  }

  void write() {
    if (moved_.empty()) return;
    const int norm = update(moved_[0]).arguments.inputs.at(0);
    const int norm_on_host = stand_in_on_host(program_, norm);
    ProgramEdit edit(program_);
    const int first = moved_[0].place;
    const int norm_copy =
        edit.insert_before(first, copy_instruction(program_, norm, norm_on_host, links_.out));
    for (Moved& one : moved_) bring_down(one, first, edit);
    for (Moved& one : moved_) update_on_host(one, first, {norm_copy, norm_on_host}, edit);
    for (Moved& one : moved_) await(one, edit);
    // The last of them has had it.
    edit.insert_before(moved_.back().place, wait(norm_copy, {norm_on_host}));
    edit.apply();
  }

 private:
  struct Moved {
    int place = -1;                // of the update
    std::vector<int> sums_places;  // of what is summed for it, which the host does itself
    int gradient = -1;
    std::vector<int> parameters;
    std::vector<StandIn> lasting;   // masters and states
    std::vector<StandIn> passing;   // gradient and parameters
    bool makes_parameters = false;  // whole ones, of masters
    std::vector<int> down;          // numbers of copies
    int paged = -1;                 // the last one of those that brought its gradient before
    int update = -1;
    std::vector<std::pair<int, int>> up;  // and what it comes from
  };

  bool is_paged(const StandIn& one) const { return pages_.contains(one.buffer); }

  int on_host_for_now(int buffer) const {
    const auto page = pages_.find(buffer);
    return page == pages_.end() ? stand_in_on_host(program_, buffer) : page->second;
  }

  const Instruction& update(const Moved& one) const {
    return program_.instructions[as_index(one.place)];
  }

  Moved moved(const StateGroup& group) {
    Moved one;
    one.place = group.update;
    const Instruction instruction = update(one);
    for (int place = group.first; place < group.update; ++place) {
      const Instruction& sums = program_.instructions[as_index(place)];
      if (sums.operation == Operation::SumTensors && sums.bucket == instruction.bucket)
        one.sums_places.push_back(place);
    }
    bool has_masters = false;
    for (const int id : instruction.reads) {
      const BufferKind kind = program_.buffers[as_index(id)].kind;
      if (kind == BufferKind::Gradient) one.gradient = id;
      if (kind == BufferKind::Parameter) one.parameters.push_back(id);
      has_masters = has_masters || kind == BufferKind::MasterParameter;
      if (kind == BufferKind::MasterParameter || kind == BufferKind::OptimizerState)
        one.lasting.push_back({id, put_below(program_, id, Tier::Host)});
    }
    expect(one.gradient >= 0, "an update without a gradient");
    const auto& buckets = program_.buckets;
    const auto number = as_index(instruction.bucket);
    const bool in_shards = number < buckets.size() && buckets[number].shard.elements > 0;
    one.makes_parameters = has_masters && !in_shards;
    one.passing.push_back({one.gradient, on_host_for_now(one.gradient)});
    for (const int parameter : one.parameters)
      one.passing.push_back({parameter, on_host_for_now(parameter)});
    return one;
  }

  // Behind it the gradient is what it will be.
  int complete_at(int gradient, int before) const {
    for (int i = before - 1; i >= 0; --i) {
      const Instruction& instruction = program_.instructions[as_index(i)];
      const int completed = instruction.completes;
      if (contains(instruction.writes, gradient)) return i;
      if (completed >= 0 && contains(program_.instructions[as_index(completed)].writes, gradient))
        return i;
    }
    throw InternalError("a gradient that nobody writes");
  }

  int last_copy_to(int on_host, int before) const {
    for (int i = before - 1; i >= 0; --i) {
      const Instruction& instruction = program_.instructions[as_index(i)];
      if (is_copy(instruction.operation) && instruction.arguments.output == on_host) return i;
    }
    throw InternalError("a gradient that nobody brings to the host");
  }

  void bring_down(Moved& one, int first, ProgramEdit& edit) {
    if (is_paged(one.passing[0])) one.paged = last_copy_to(one.passing[0].on_host, first);
    const int complete = one.paged >= 0 ? -1 : complete_at(one.gradient, one.place);
    for (const StandIn& down : one.passing) {
      if (is_paged(down)) continue;
      if (one.makes_parameters && down.buffer != one.gradient) continue;
      Instruction copy = copy_instruction(program_, down.buffer, down.on_host, links_.out);
      one.down.push_back(when_ == GradientCopies::WhenComplete && complete >= 0
                             ? edit.insert_after(complete, std::move(copy))
                             : edit.insert_before(first, std::move(copy)));
    }
  }

  void update_on_host(Moved& one, int first, const std::pair<int, int>& norm, ProgramEdit& edit) {
    const auto& [norm_copy, norm_on_host] = norm;
    const Instruction& device = update(one);
    Instruction host;
    host.operation = Operation::UpdateHost;
    host.node = device.node;
    host.bucket = device.bucket;
    host.lane = Lane::HostCompute;
    host.after = one.down;
    host.after.push_back(norm_copy);
    if (one.paged >= 0) host.after.push_back(one.paged);
    std::sort(host.after.begin(), host.after.end());
    host.arguments.inputs = {norm_on_host};
    host.arguments.pieces = device.arguments.pieces;
    host.arguments.stand_ins = one.lasting;
    host.arguments.stand_ins.insert(host.arguments.stand_ins.end(), one.passing.begin(),
                                    one.passing.end());
    host.reads = {norm_on_host};
    std::int64_t bytes = 0;
    for (const StandIn& stand_in : host.arguments.stand_ins) {
      const bool made =
          one.makes_parameters && contains(one.parameters, stand_in.buffer) && !is_paged(stand_in);
      if (!made) host.reads.push_back(stand_in.on_host);
      if (stand_in.buffer != one.gradient) host.writes.push_back(stand_in.on_host);
      const bool both = !made && stand_in.buffer != one.gradient;
      bytes += program_.buffers[as_index(stand_in.buffer)].bytes * (both ? 2 : 1);
    }
    host.seconds = static_cast<double>(bytes) / bytes_per_second_;
    one.update = edit.insert_before(first, std::move(host));
    for (const StandIn& up : one.passing) {
      if (up.buffer == one.gradient || is_paged(up)) continue;
      Instruction copy = copy_instruction(program_, up.on_host, up.buffer, links_.in);
      copy.reads.push_back(up.buffer);  // over what is there
      copy.after = one.down;
      copy.after.push_back(one.update);
      std::sort(copy.after.begin(), copy.after.end());
      one.up.emplace_back(edit.insert_before(first, std::move(copy)), up.on_host);
    }
  }

  // In the place of the device's update, and with what that frees.
  void await(const Moved& one, ProgramEdit& edit) {
    std::vector<int> freed = update(one).frees;
    for (const int place : one.sums_places) {
      std::erase(freed, program_.instructions[as_index(place)].arguments.output);
      edit.remove(place);
    }
    std::erase_if(freed, [&](int id) { return pages_.contains(id); });
    for (const int number : one.down)
      edit.insert_before(one.place, wait(number, std::exchange(freed, {})));
    freed.push_back(one.passing[0].on_host);
    edit.insert_before(one.place, wait(one.update, std::move(freed)));
    for (const auto& [number, on_host] : one.up)
      edit.insert_before(one.place, wait(number, {on_host}));
    edit.remove(one.place);
  }

  static Instruction wait(int completes, std::vector<int> frees) {
    Instruction instruction;
    instruction.operation = Operation::Wait;
    instruction.node = "updates on the host";
    instruction.completes = completes;
    instruction.frees = std::move(frees);
    return instruction;
  }

  Program& program_;
  const std::vector<StateGroup>& groups_;
  const TierLinks& links_;
  const double bytes_per_second_;
  const GradientCopies when_;
  const std::map<int, int>& pages_;
  std::vector<Moved> moved_;
};

}  // namespace

std::vector<StateGroup> for_host(const Program& program, std::vector<StateGroup> groups) {
  std::erase_if(groups, [&](const StateGroup& group) {
    if (group.first == group.update) return false;
    const int sums = program.instructions[as_index(group.first)].arguments.output;
    return std::any_of(
        program.instructions.begin(), program.instructions.end(), [&](const Instruction& one) {
          return one.operation == Operation::AllReduce && contains(one.arguments.inputs, sums);
        });
  });
  return groups;
}

Program with_updates_on_host(Program program, const std::vector<StateGroup>& groups,
                             const TierLinks& links, double bytes_per_second, GradientCopies when,
                             const std::map<int, int>& pages) {
  HostUpdateWriter(program, groups, links, bytes_per_second, when, pages).write();
  set_replayed(program);
  return program;
}

}  // namespace garonne::plan
