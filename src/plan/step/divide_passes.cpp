#include "plan/step/divide_passes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "base/contains.hpp"
#include "base/error.hpp"
#include "base/index.hpp"
#include "plan/program/program_edit.hpp"
#include "plan/step/launches.hpp"

namespace garonne::plan {
namespace {

bool is_to_divide(const Instruction& instruction) {
  return instruction.channel &&
         (is_forward(instruction.operation) || is_backward(instruction.operation));
}

Operation operation_of(const NodeCollective& collective) {
  for (const Operation operation :
       {Operation::AllReduce, Operation::ReduceScatter, Operation::AllGather}) {
    if (to_string(operation) == collective.kind) return operation;
  }
  throw InternalError(collective.kind + " is no collective");
}

class PassDivider {
 public:
  PassDivider(Program& program, const ModelGraph& graph)
      : program_(program), graph_(graph), edit_(program) {
    for (std::size_t i = 0; i < program.instructions.size(); ++i) {
      if (program.instructions[i].operation == Operation::Wait)
        wait_of_[program.instructions[i].completes] = static_cast<int>(i);
    }
  }

  void run() {
    const auto count = static_cast<int>(program_.instructions.size());
    for (int place = 0; place < count; ++place) {
      if (is_to_divide(program_.instructions[as_index(place)])) divide(place);
    }
    edit_.apply();
  }

 private:
  // The pass becomes its own last part; the others go before it.
  void divide(int place) {
    Instruction& pass = program_.instructions[as_index(place)];
    const NodeSpec& node = graph_.nodes[as_index(pass.node_index)];
    const bool forward = is_forward(pass.operation);
    const NodeCollective& collective = forward ? node.forward_collective : node.backward_collective;
    const int result = forward ? pass.arguments.output : pass.arguments.input_gradients.at(0);
    expect(result >= 0, describe(pass) + " communicates for nobody");
    const bool apart = collective.buffer_bytes > 0;
    const int exchanged = apart ? new_buffer(pass, "exchanged", collective.buffer_bytes) : result;
    const int staging =
        collective.staging_bytes > 0 ? new_buffer(pass, "staging", collective.staging_bytes) : -1;
    const std::int64_t spare = spare_bytes(pass, result, apart ? exchanged : -1, staging);
    Instruction first = first_part(pass, forward, exchanged);
    // The node's own go to the parts as its kernels do.
    const PartKernels kernels = kernels_of_parts(node, forward);
    if (kernels.before > 0) {
      first.issue_seconds = pass.issue_seconds * kernels.before / (kernels.before + kernels.after);
      pass.issue_seconds -= first.issue_seconds;
    }
    Instruction meets = meeting(pass, collective, exchanged, staging, spare);
    if (pass.lane != Lane::Compute)
      return divide_beside(place, std::move(first), std::move(meets), result);
    edit_.insert_before(place, std::move(first));
    edit_.insert_before(place, std::move(meets));
    make_last_part(pass, forward, exchanged, result);
  }

  // The collective goes on beside Compute until the wait for the pass, behind which the last part
  // comes. What only the first part reads is not held until then.
  void divide_beside(int place, Instruction first, Instruction meets, int result) {
    Instruction& pass = program_.instructions[as_index(place)];
    const int wait_place = wait_of_.at(place);
    Instruction& wait = program_.instructions[as_index(wait_place)];
    meets.lane = std::exchange(pass.lane, Lane::Compute);
    const std::vector<int> freed = std::move(wait.frees);
    wait.frees = std::move(meets.frees);
    meets.frees.clear();
    make_last_part(pass, is_forward(pass.operation), meets.arguments.exchanged, result);
    Instruction last = std::move(pass);
    for (const int buffer : freed) {
      const bool held = contains(last.reads, buffer) || contains(last.writes, buffer);
      (held ? last : first).frees.push_back(buffer);
    }
    edit_.remove(place);
    edit_.insert_before(place, std::move(first));
    wait.completes = edit_.insert_before(place, std::move(meets));
    edit_.insert_after(wait_place, std::move(last));
  }

  int new_buffer(const Instruction& pass, const char* role, std::int64_t bytes) {
    Buffer buffer;
    buffer.name = fmt::format("{}.{}#{}", pass.node, role, pass.micro_batch);
    buffer.kind = BufferKind::Communication;
    buffer.bytes = round_up(bytes, program_.tier(buffer.tier).granularity);
    program_.buffers.push_back(std::move(buffer));
    return static_cast<int>(program_.buffers.size()) - 1;
  }

  std::int64_t bytes(int buffer) const {
    return buffer < 0 ? 0 : program_.buffers[as_index(buffer)].bytes;
  }

  // What the node declares beyond what the parts take; counted while the ranks meet.
  std::int64_t spare_bytes(const Instruction& pass, int result, int apart, int staging) const {
    const bool makes = contains(pass.writes, result) && !contains(pass.reads, result);
    const std::int64_t made = makes ? bytes(result) : 0;
    const std::int64_t declared = pass.transient_bytes + made;
    const std::int64_t meeting = (apart >= 0 ? bytes(apart) : made) + bytes(staging);
    const std::int64_t all = apart >= 0 ? std::max(meeting, bytes(apart) + made) : meeting;
    expect(declared >= all, fmt::format("{} declares {} bytes where its parts take {}",
                                        describe(pass), declared, all));
    return declared > all ? declared - meeting : 0;
  }

  static Instruction part_of(const Instruction& pass) {
    Instruction part;
    part.operation = pass.operation;
    part.node = pass.node;
    part.node_index = pass.node_index;
    part.micro_batch = pass.micro_batch;
    part.recompute = pass.recompute;
    return part;
  }

  static Instruction first_part(const Instruction& pass, bool forward, int exchanged) {
    Instruction part = part_of(pass);
    if (forward) {
      part.arguments.inputs = part.reads = pass.arguments.inputs;
    } else {
      part.arguments.output_gradient = pass.arguments.output_gradient;
      part.reads = {pass.arguments.output_gradient};
    }
    part.arguments.exchanged = exchanged;
    part.writes = {exchanged};
    return part;
  }

  static Instruction meeting(const Instruction& pass, const NodeCollective& collective,
                             int exchanged, int staging, std::int64_t spare) {
    Instruction part = part_of(pass);
    part.operation = operation_of(collective);
    part.arguments.inputs = part.reads = {exchanged};
    part.arguments.exchanged = exchanged;
    if (part.operation == Operation::AllGather) part.arguments.output = exchanged;
    part.arguments.staging = staging;
    part.writes = {exchanged};
    if (staging >= 0) {
      part.writes.push_back(staging);
      part.frees = {staging};
    }
    part.transient_bytes = spare;
    part.seconds = pass.seconds;
    part.channel = pass.channel;
    return part;
  }

  static void make_last_part(Instruction& pass, bool forward, int exchanged, int result) {
    const bool over = !forward && result == pass.arguments.output_gradient;
    pass.operation = forward ? Operation::FinishForward : Operation::FinishBackward;
    pass.arguments.exchanged = exchanged;
    pass.arguments.inputs.assign(forward ? 0 : 1, -1);
    pass.arguments.output_gradient = -1;
    pass.reads = {exchanged};
    if (over && exchanged != result) pass.reads.push_back(result);
    if (!forward && pass.arguments.accumulated.at(0) >= 0)
      pass.reads.push_back(pass.arguments.accumulated[0]);
    pass.writes = {result};
    if (exchanged != result) pass.frees.push_back(exchanged);
    pass.transient_bytes = 0;
    pass.seconds = 0;
    pass.channel.reset();
  }

  Program& program_;
  const ModelGraph& graph_;
  ProgramEdit edit_;
  std::map<int, int> wait_of_;  // by instruction on another lane
};

}  // namespace

void divide_passes(Program& program, const ModelGraph& graph) {
  if (std::none_of(program.instructions.begin(), program.instructions.end(), is_to_divide)) return;
  PassDivider(program, graph).run();
}

}  // namespace garonne::plan
