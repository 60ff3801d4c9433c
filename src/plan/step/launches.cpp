#include "plan/step/launches.hpp"

#include <algorithm>

#include "base/index.hpp"
#include "plan/model/group_links.hpp"

namespace garonne::plan {
namespace {

const NodeSpec& node_of(const Instruction& instruction, const ModelGraph& graph) {
  return graph.nodes.at(as_index(instruction.node_index));
}

bool is_matrix(const ParameterSpec& parameter) {
  return parameter.shape.size() > 1;
}

// Of a node that meets other ranks in the other pass, whose seconds are no row of a cost table.
int kernels_of_whole_pass(const Instruction& instruction, const ModelGraph& graph) {
  const NodeSpec& node = node_of(instruction, graph);
  if (!node.communicates()) return 0;
  return is_forward(instruction.operation) ? node.forward.kernels : node.backward.kernels;
}

int kernels_of_part(const Instruction& instruction, const ModelGraph& graph) {
  const Operation operation = instruction.operation;
  const bool forward = is_forward(operation) || operation == Operation::FinishForward;
  const PartKernels parts = kernels_of_parts(node_of(instruction, graph), forward);
  if (is_finish(operation)) return parts.after;
  // What is exchanged is what was given.
  const bool in_place = instruction.arguments.exchanged == instruction.arguments.output_gradient;
  return in_place ? 0 : parts.before;
}

// Of a sum of gradients: what nodes exchange is as it travels.
bool converts(const Instruction& instruction) {
  return instruction.channel && instruction.channel->wire && instruction.arguments.exchanged < 0;
}

int kernels_of_sums(const Instruction& instruction, const Program& program, const ModelGraph& graph,
                    const StepShape& step) {
  int kernels = 1;  // the sums are 0 first
  for (const int piece : instruction.arguments.pieces) {
    const int parameter = program.pieces.at(as_index(piece)).parameter;
    kernels += launches_of_sums(step, instruction.arguments.inputs.size() - 1,
                                is_matrix(graph.parameters.at(as_index(parameter))));
  }
  return kernels;
}

// That the host puts on a lane, copies and collectives included. Passes of nodes have theirs from
// the nodes, where that is none, too.
int kernels_of(const Instruction& instruction, const Program& program, const ModelGraph& graph,
               const StepShape& step) {
  const bool pass = is_forward(instruction.operation) || is_backward(instruction.operation);
  if (pass && instruction.arguments.exchanged < 0) return kernels_of_whole_pass(instruction, graph);
  if (pass || is_finish(instruction.operation)) return kernels_of_part(instruction, graph);
  switch (instruction.operation) {
    case Operation::Wait:
    case Operation::UpdateHost:
      return 0;
    case Operation::SumSquares:
      return std::max(1, static_cast<int>(instruction.reads.size()));
    case Operation::SumTensors:
      return kernels_of_sums(instruction, program, graph, step);
    case Operation::Update:
      return launches_of_update(step) *
             std::max(1, static_cast<int>(instruction.arguments.pieces.size()));
    default:
      return launches_of_collective(instruction.operation, converts(instruction));
  }
}

// That the rank sends and receives, half of them of a message.
double bytes_both_ways(const Instruction& instruction, const StepShape& step) {
  const Channel& channel = *instruction.channel;
  if (is_message(instruction.operation)) return static_cast<double>(channel.bytes) / 2;
  const LinkTraffic traffic = collective_traffic(channel.kind, channel.bytes,
                                                 static_cast<std::int64_t>(channel.members.size()),
                                                 step.links.of_group(channel.group));
  return traffic.inside + traffic.between;
}

void add_communication(Program& program, const StepShape& step) {
  for (Instruction& instruction : program.instructions) {
    if (instruction.operation != Operation::Wait) continue;
    const Instruction& waited = program.instructions.at(as_index(instruction.completes));
    if (waited.channel && waited.lane != Lane::Compute)
      instruction.seconds = step.kernels.communication * bytes_both_ways(waited, step);
  }
}

bool computes(const Instruction& instruction) {
  return is_local_work(instruction) && instruction.operation != Operation::Load &&
         instruction.operation != Operation::Report;
}

}  // namespace

int launches_of_collective(Operation operation, bool converts) {
  switch (operation) {
    // An exchange of pieces, and their sum; where they travel narrower than they are kept, before
    // it the pieces of those before this rank and behind it.
    case Operation::ReduceScatter:
      return converts ? 4 : 2;
    // And sums to all; of such, made narrow and wide again.
    case Operation::AllReduce:
      return converts ? 7 : 3;
    default:
      return 1;
  }
}

int kernels_beside_meeting(const NodeSpec& node, bool forward) {
  const NodeCollective& collective = forward ? node.forward_collective : node.backward_collective;
  if (collective.kind.empty()) return forward ? node.forward.kernels : node.backward.kernels;
  const PartKernels parts = kernels_of_parts(node, forward);
  // A gradient that is exchanged where it lies is made by nothing.
  const bool in_place = !forward && collective.buffer_bytes == 0;
  return (in_place ? 0 : parts.before) + parts.after;
}

int launches_of_meeting(const NodeSpec& node, bool forward) {
  const NodeCollective& collective = forward ? node.forward_collective : node.backward_collective;
  int launches = kernels_beside_meeting(node, forward);
  for (const Operation operation :
       {Operation::AllReduce, Operation::ReduceScatter, Operation::AllGather}) {
    if (to_string(operation) == collective.kind)
      launches += launches_of_collective(operation, false);
  }
  return launches;
}

PartKernels kernels_of_parts(const NodeSpec& node, bool forward) {
  const NodeCollective& collective = forward ? node.forward_collective : node.backward_collective;
  const int all = forward ? node.forward.kernels : node.backward.kernels;
  // One puts this rank's into what is gathered, and one takes a sum out of a storage of its own.
  if (collective.kind == to_string(Operation::AllGather))
    return {std::min(all, 1), all - std::min(all, 1)};
  const int after = collective.buffer_bytes > 0 ? std::min(all, 1) : 0;
  return {all - after, after};
}

int launches_of_sums(const StepShape& step, std::size_t round, bool matrix) {
  const TensorSums& sums = step.tensor_sums.at(round);
  // Squares of the parameter, of blocks first; rows; columns; what the rows come to.
  if (sums.sides) return 5;
  // Norms are of matrices alone; what sums the sides of matrices takes vectors for columns.
  const bool of_all = std::any_of(step.tensor_sums.begin(), step.tensor_sums.end(),
                                  [](const TensorSums& one) { return one.sides; });
  // Each sum is of blocks first.
  return matrix || of_all ? 2 * static_cast<int>(sums.numbers) : 0;
}

int launches_of_update(const StepShape& step) {
  // States of rows and columns are updated by a kernel of their own, behind the elements.
  const bool of_sides = std::any_of(step.optimizer_states.begin(), step.optimizer_states.end(),
                                    [](const StateSpec& state) { return state.blocks.of_whole(); });
  return of_sides ? 2 : 1;
}

int launches_of_training(const StepShape& step, bool matrix) {
  int launches = launches_of_update(step);
  for (std::size_t round = 0; round < step.tensor_sums.size(); ++round)
    launches += launches_of_sums(step, round, matrix);
  return launches;
}

void add_launches(Program& program, const ModelGraph& graph, const StepShape& step) {
  const KernelSeconds& kernels = step.kernels;
  if (kernels.communication > 0) add_communication(program, step);
  if (kernels.least <= 0 && kernels.issue <= 0) return;
  for (Instruction& instruction : program.instructions) {
    const int count = kernels_of(instruction, program, graph, step);
    if (count == 0) continue;
    if (instruction.issue_seconds <= 0) instruction.issue_seconds = count * kernels.issue;
    if (computes(instruction))
      instruction.seconds = std::max(instruction.seconds, count * kernels.least);
  }
}

}  // namespace garonne::plan
