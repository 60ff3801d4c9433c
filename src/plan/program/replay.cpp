#include "plan/program/replay.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>

#include "base/contains.hpp"
#include "base/index.hpp"
#include "plan/program/lane_clock.hpp"
#include "plan/program/replay_roles.hpp"
#include "plan/program/rotated_step.hpp"
#include "plan/program/spans.hpp"

namespace garonne::plan {
namespace {

// One pass over one Program.
class Replay {
 public:
  // `with_roles`: what its instructions make of what others have made; it has to be a whole step.
  Replay(const Program& program, bool with_roles)
      : program_(program),
        roles_(program),
        with_roles_(with_roles),
        live_(program.buffers.size(), false),
        pending_(program.buffers.size()),
        spans_(program.instructions.size()) {}

  Prediction run() {
    start();
    for (int i = 0; i < static_cast<int>(program_.instructions.size()); ++i) step(i);
    finish();
    return prediction_;
  }

  // Once it has run.
  const std::vector<Span>& spans() const { return spans_; }

 private:
  static constexpr std::array<Tier, tier_count> all_tiers = {Tier::Device, Tier::Host, Tier::Disk};
  struct Live {
    std::int64_t bytes = 0;
    BytesByKind by_kind{};
  };
  // What beside Compute may be under way with a buffer.
  struct Pending {
    std::vector<int> users;  // instructions, those that write included
    std::vector<int> writers;
  };
  Live& live_in(Tier tier) { return live_bytes_[static_cast<std::size_t>(tier)]; }

  [[noreturn]] void fail(int i, const std::string& reason) const {
    const bool inside = i >= 0 && as_index(i) < program_.instructions.size();
    throw ReplayError(i, inside ? describe(program_.instructions[as_index(i)]) : "end of the step",
                      reason);
  }

  const Buffer& buffer(int i, int id) const {
    if (id < 0 || as_index(id) >= program_.buffers.size())
      fail(i, fmt::format("no buffer has the id {}", id));
    return program_.buffers[as_index(id)];
  }

  void start() {
    in_pipeline_ = std::any_of(program_.instructions.begin(), program_.instructions.end(),
                               [](const Instruction& one) { return is_message(one.operation); });
    for (const Tier tier : {Tier::Host, Tier::Disk}) {
      const bool used = std::any_of(program_.buffers.begin(), program_.buffers.end(),
                                    [&](const Buffer& buffer) { return buffer.tier == tier; });
      if (used) used_tiers_.push_back(tier);
    }
    for (std::size_t id = 0; id < program_.buffers.size(); ++id) {
      const Buffer& buffer = program_.buffers[id];
      if (buffer.bytes < 0) fail(0, buffer.name + " has a negative size");
      if (!is_there_at_start(buffer)) continue;
      make_live(static_cast<int>(id));
      if (buffer.live_at_end) of(buffer.tier).static_bytes += buffer.bytes;
    }
    for (const Tier tier : all_tiers) note_peak(tier, -1, 0);
  }

  void make_live(int id) {
    live_[as_index(id)] = true;
    const Buffer& buffer = program_.buffers[as_index(id)];
    Live& live = live_in(buffer.tier);
    live.bytes += buffer.bytes;
    live.by_kind[static_cast<std::size_t>(buffer.kind)] += buffer.bytes;
  }

  TierBytes& of(Tier tier) {
    return tier == Tier::Device ? prediction_
           : tier == Tier::Host ? prediction_.host
                                : prediction_.disk;
  }

  void note_peak(Tier tier, int i, std::int64_t transient) {
    TierBytes& found = of(tier);
    const Live& live = live_in(tier);
    if (live.bytes + transient <= found.peak_bytes && i >= 0) return;
    found.peak_bytes = live.bytes + transient;
    found.peak_instruction = i;
    found.peak_transient_bytes = transient;
    found.peak_by_kind = live.by_kind;
  }

  // Whether it starts after them. What is on Compute waits for them first, and so does a gather
  // into another buffer, whose part Compute copies there when it is issued.
  static bool follows_all(const Instruction& instruction, const std::vector<int>& pending) {
    const Arguments& arguments = instruction.arguments;
    const bool copies = instruction.operation == Operation::AllGather &&
                        !contains(arguments.inputs, arguments.output);
    const bool beside = instruction.lane != Lane::Compute && !copies;
    return std::all_of(pending.begin(), pending.end(),
                       [&](int earlier) { return beside && contains(instruction.after, earlier); });
  }

  void step(int i) {
    const Instruction& instruction = program_.instructions[as_index(i)];
    check_order_of_sums(i, instruction);
    if (with_roles_) roles_.check(i, instruction);
    for (const int id : instruction.reads) {
      if (!live_[as_index((buffer(i, id), id))])
        fail(i, "reads " + buffer(i, id).name + ", which is not live");
      if (!follows_all(instruction, pending_[as_index(id)].writers)) {
        fail(i, "reads " + buffer(i, id).name + " while an asynchronous instruction writes it");
      }
    }
    for (const int id : instruction.writes) {
      const bool updates = std::find(instruction.reads.begin(), instruction.reads.end(), id) !=
                           instruction.reads.end();
      if (live_[as_index((buffer(i, id), id))]) {
        if (!updates) fail(i, "makes " + buffer(i, id).name + ", which is already live");
        if (!follows_all(instruction, pending_[as_index(id)].users)) {
          fail(i, "writes " + buffer(i, id).name + " while an asynchronous instruction uses it");
        }
      } else {
        make_live(id);
      }
    }
    if (instruction.transient_bytes < 0) fail(i, "has a negative transient");
    begin_or_complete(i, instruction);
    for (const Tier tier : used_tiers_) {
      // What an instruction takes beside its buffers it takes where it computes.
      const std::int64_t transient = tier == Tier::Device ? instruction.transient_bytes : 0;
      note_peak(tier, i, transient);
      of(tier).during_bytes.push_back(live_in(tier).bytes + transient);
    }
    for (const int id : instruction.frees) free_buffer(i, id);
    for (const Tier tier : used_tiers_) of(tier).live_bytes.push_back(live_in(tier).bytes);
  }

  // Contributions to one parameter gradient: micro-batches ascend, within one the node list
  // descends.
  void check_order_of_sums(int i, const Instruction& instruction) {
    for (const auto& target : instruction.arguments.parameter_gradients) {
      const auto place = std::make_pair(target.range.buffer, target.range.offset);
      const auto now = std::make_pair(instruction.micro_batch, -instruction.node_index);
      // Stages of a pipeline take micro-batches as they come: there each node's own ascend.
      const auto found = last_contribution_.find(place);
      if (found == last_contribution_.end()) {
        if (target.accumulate) fail(i, "adds to a gradient that has no first contribution");
        last_contribution_.emplace(place, now);
        continue;
      }
      if (!target.accumulate) fail(i, "overwrites a gradient that has contributions");
      const bool ordered =
          in_pipeline_ ? last_of_node_[{place, instruction.node_index}] <= instruction.micro_batch
                       : now > found->second;
      if (!ordered) fail(i, "adds to a gradient out of the canonical order");
      last_of_node_[{place, instruction.node_index}] = instruction.micro_batch;
      found->second = now;
    }
  }

  void begin_or_complete(int i, const Instruction& instruction) {
    Span& span = spans_[as_index(i)];
    prediction_.issue_seconds += instruction.issue_seconds;
    span.begin = clock_.issue(instruction.issue_seconds);
    if (instruction.lane == Lane::Compute) {
      if (!instruction.after.empty()) fail(i, "follows others on compute, where only a wait waits");
      clock_.compute(instruction.seconds);
    } else {
      span = begin(i, instruction, span.begin);
    }
    if (instruction.operation == Operation::Wait) complete(i, instruction);
    if (instruction.lane == Lane::Compute) span.end = clock_.now();
  }

  // `ready`: what Compute and the host have come to.
  Span begin(int i, const Instruction& instruction, double ready) {
    for (const int earlier : instruction.after) {
      if (earlier < 0 || earlier >= i) fail(i, "follows what does not come before it");
      const auto found = end_of_.find(earlier);
      if (found != end_of_.end()) ready = std::max(ready, found->second);
    }
    for (const int id : instruction.reads) pending_[as_index(id)].users.push_back(i);
    for (const int id : instruction.writes) {
      pending_[as_index(id)].users.push_back(i);
      pending_[as_index(id)].writers.push_back(i);
    }
    Line& line = clock_.line(queue_of(instruction.lane));
    const double start = line.start(ready);
    const double end = start + instruction.seconds;
    line.take(end);
    end_of_.emplace(i, end);
    return {start, end};
  }

  // A rank alone knows nothing of links: its messages queue with its collectives.
  static Lane queue_of(Lane lane) { return lane == Lane::Message ? Lane::Collective : lane; }

  void complete(int i, const Instruction& instruction) {
    const auto found = end_of_.find(instruction.completes);
    if (found == end_of_.end()) fail(i, "waits for nothing that is under way");
    clock_.wait(found->second);
    const Instruction& waited = program_.instructions[as_index(instruction.completes)];
    for (const auto& ids : {waited.reads, waited.writes}) {
      for (const int id : ids) {
        std::erase(pending_[as_index(id)].users, instruction.completes);
        std::erase(pending_[as_index(id)].writers, instruction.completes);
      }
    }
    end_of_.erase(found);
  }

  void free_buffer(int i, int id) {
    const Buffer& freed = buffer(i, id);
    if (!live_[as_index(id)]) fail(i, "frees " + freed.name + ", which is not live");
    if (!pending_[as_index(id)].users.empty())
      fail(i, "frees " + freed.name + " while an asynchronous instruction uses it");
    live_[as_index(id)] = false;
    Live& live = live_in(freed.tier);
    live.bytes -= freed.bytes;
    live.by_kind[static_cast<std::size_t>(freed.kind)] -= freed.bytes;
  }

  void finish() {
    const int end = static_cast<int>(program_.instructions.size());
    if (!end_of_.empty()) fail(end_of_.begin()->first, "is never waited for");
    if (with_roles_) roles_.finish();
    for (std::size_t id = 0; id < live_.size(); ++id) {
      const Buffer& buffer = program_.buffers[id];
      if (live_[id] == (buffer.live_at_end || buffer.carried)) continue;
      fail(end, buffer.name + (live_[id] ? " is still live" : " should be live and is not"));
    }
    prediction_.seconds = clock_.now();
    prediction_.launch_seconds = clock_.launch_seconds();
  }

  const Program& program_;
  RoleCheck roles_;
  const bool with_roles_;
  std::vector<bool> live_;
  std::vector<Pending> pending_;  // by buffer
  std::map<int, double> end_of_;  // of instructions that are under way
  std::map<std::pair<int, std::int64_t>, std::pair<int, int>> last_contribution_;
  std::map<std::pair<std::pair<int, std::int64_t>, int>, int> last_of_node_;  // micro-batch
  bool in_pipeline_ = false;
  std::array<Live, tier_count> live_bytes_{};
  std::vector<Tier> used_tiers_ = {Tier::Device};
  LaneClock clock_;
  std::vector<Span> spans_;  // by instruction
  Prediction prediction_;
};

}  // namespace

ReplayError::ReplayError(int instruction, const std::string& description, const std::string& reason)
    : Error(ExitCode::Other, instruction < 0
                                 ? fmt::format("illegal Program: {}: {}", description, reason)
                                 : fmt::format("illegal Program: instruction {}, {}: {}",
                                               instruction, description, reason)),
      instruction_(instruction) {}

Prediction replay(const Program& program) {
  if (!is_rotated(program)) return Replay(program, true).run();
  check_rotation(program);
  Replay(as_whole_step(program), true).run();
  return Replay(program, false).run();
}

std::vector<Span> spans_of(const Program& program) {
  Replay replay(program, !is_rotated(program));
  replay.run();
  return replay.spans();
}

}  // namespace garonne::plan
