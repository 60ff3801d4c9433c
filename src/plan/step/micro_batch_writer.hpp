// The instructions of one micro-batch, and where its values, gradients and records are. For the
// generator's own use.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/index.hpp"
#include "plan/step/node_schedule.hpp"
#include "plan/step/program_builder.hpp"

namespace garonne::plan {

// Where the values of one micro-batch are, forward and backward.
class MicroBatchWriter {
 public:
  MicroBatchWriter(ProgramBuilder& builder, const ModelGraph& graph, int micro_batch)
      : builder_(builder),
        graph_(graph),
        micro_batch_(micro_batch),
        value_(graph.values.size(), -1),
        gradient_(graph.values.size(), -1),
        held_(graph.nodes.size(), -1),
        weights_done_(graph.nodes.size(), false),
        option_(graph.nodes.size(), 0),
        record_(graph.nodes.size()) {}

  // `received`: values of other stages come by messages of their own.
  void load(bool received) {
    Instruction instruction = make(Operation::Load, "micro-batch", -1);
    for (std::size_t v = 0; v < graph_.values.size(); ++v) {
      if (!graph_.values[v].loaded || (received && graph_.values[v].differentiable)) continue;
      value_[v] = new_buffer(graph_.values[v].name, BufferKind::Value, graph_.values[v].bytes);
      instruction.writes.push_back(value_[v]);
      instruction.arguments.loaded.push_back({static_cast<int>(v), value_[v]});
    }
    builder_.add(std::move(instruction));
  }

  // Posts the receive of the chunk's input; the instruction to wait for.
  void receive_value(int v, Channel channel) {
    Instruction instruction = make(Operation::Receive, graph_.values[as_index(v)].name, -1);
    value_[as_index(v)] = new_buffer(graph_.values[as_index(v)].name, BufferKind::Value,
                                     graph_.values[as_index(v)].bytes);
    instruction.writes = {value_[as_index(v)]};
    instruction.arguments.output = value_[as_index(v)];
    instruction.arguments.value = v;
    communicate(std::move(instruction), std::move(channel));
  }

  // Of a receive that has ended: makes whole what came in parts.
  void gather_received(int receive) {
    const Instruction received = builder_.instruction(receive);
    if (!is_part_of_message(received)) return;
    Instruction instruction = make(Operation::AllGather, received.node, received.node_index);
    instruction.arguments.value = received.arguments.value;
    instruction.arguments.gradient = received.arguments.gradient;
    builder_.set_gather_over_tensor(received.arguments.output, instruction);
    builder_.add(std::move(instruction));
  }

  void send_gradient(int v, Channel channel) {
    Instruction instruction =
        make(Operation::Send, graph_.values[as_index(v)].name + ".gradient", -1);
    expect(gradient_[as_index(v)] >= 0, instruction.node + " is sent and was not made");
    instruction.reads = {gradient_[as_index(v)]};
    instruction.arguments.inputs = instruction.reads;
    instruction.arguments.value = v;
    instruction.arguments.gradient = true;
    gradient_[as_index(v)] = -1;
    communicate(std::move(instruction), std::move(channel));
  }

  // The forward of a node that hands over.
  void send_value(int n, std::optional<Channel> channel) {
    const NodeSpec& node = graph_.nodes[as_index(n)];
    Instruction instruction = make(Operation::Send, node.name, n);
    instruction.reads = {value_[as_index(node.inputs[0])]};
    instruction.arguments.inputs = instruction.reads;
    const ValueSpec& output = graph_.values[as_index(node.output)];
    value_[as_index(node.output)] = new_buffer(output.name, BufferKind::Value, 0);
    instruction.writes = {value_[as_index(node.output)]};
    instruction.arguments.output = value_[as_index(node.output)];
    communicate(std::move(instruction), std::move(channel));
  }

  // Its backward.
  void receive_gradient(int n, std::optional<Channel> channel) {
    const NodeSpec& node = graph_.nodes[as_index(n)];
    const int input = node.inputs[0];
    Instruction instruction = make(Operation::Receive, node.name, n);
    const ValueSpec& value = graph_.values[as_index(input)];
    gradient_[as_index(input)] =
        new_buffer(value.name + ".gradient", BufferKind::ValueGradient, value.bytes);
    instruction.writes = {gradient_[as_index(input)]};
    instruction.arguments.output = gradient_[as_index(input)];
    instruction.arguments.value = input;
    instruction.arguments.gradient = true;
    communicate(std::move(instruction), std::move(channel));
  }

  // `option`: the way in which it makes the node's record, if any; a recomputation makes new
  // buffers for the values it makes again. `collective_lane`: the lane of its collective, where it
  // has one.
  void forward(int n, int option, bool recompute, Lane collective_lane = Lane::Compute) {
    const NodeSpec& node = graph_.nodes[as_index(n)];
    const bool keep = option != NodeStep::no_record;
    if (keep) option_[as_index(n)] = option;
    const KeepOption& kept = node.keep_option(option_[as_index(n)]);
    Instruction instruction =
        make(keep ? Operation::ForwardKeep : Operation::Forward, node.name, n);
    instruction.recompute = recompute;
    const OperationCost& cost = keep ? kept.forward_keep : node.forward;
    instruction.transient_bytes = cost.transient_bytes;
    instruction.seconds = cost.seconds;
    instruction.issue_seconds = cost.issue_seconds;
    Arguments& arguments = instruction.arguments;
    for (const int input : node.inputs) arguments.inputs.push_back(value_[as_index(input)]);
    instruction.reads = arguments.inputs;
    read_parameters(node, instruction);
    const ValueSpec& output = graph_.values[as_index(node.output)];
    arguments.output = new_buffer(output.name, BufferKind::Value, output.bytes);
    value_[as_index(node.output)] = arguments.output;
    instruction.writes.push_back(arguments.output);
    if (keep) {
      arguments.keep_option = option;
      for (std::size_t slot = 0; slot < kept.private_slot_bytes.size(); ++slot) {
        arguments.record.push_back(new_buffer(fmt::format("{}.{}{}", node.name, kept.name, slot),
                                              BufferKind::Record, kept.private_slot_bytes[slot]));
      }
      record_[as_index(n)] = arguments.record;
      instruction.writes.insert(instruction.writes.end(), arguments.record.begin(),
                                arguments.record.end());
    }
    set_collective(node.forward_collective, collective_lane, instruction);
    builder_.add(std::move(instruction));
  }

  void emit_loss(int loss_sum, bool first) {
    Instruction instruction = make(Operation::EmitLoss, "loss", -1);
    instruction.arguments.inputs = {value_[as_index(graph_.loss)]};
    instruction.reads = instruction.arguments.inputs;
    if (!first) instruction.reads.push_back(loss_sum);
    instruction.writes = {loss_sum};
    instruction.arguments.output = loss_sum;
    builder_.add(std::move(instruction));
  }

  void backward(int n, Pass pass, Lane collective_lane = Lane::Compute) {
    const NodeSpec& node = graph_.nodes[as_index(n)];
    const KeepOption& kept = node.keep_option(option_[as_index(n)]);
    const bool weights = pass != Pass::BackwardInput;
    const bool inputs = pass != Pass::BackwardWeight;
    const Operation operation = pass == Pass::Backward         ? Operation::Backward
                                : pass == Pass::BackwardWeight ? Operation::BackwardWeight
                                                               : Operation::BackwardInput;
    Instruction instruction = make(operation, node.name, n);
    const OperationCost& cost = pass == Pass::BackwardWeight ? kept.backward_weight : kept.backward;
    instruction.transient_bytes = cost.transient_bytes;
    instruction.seconds = cost.seconds;
    instruction.issue_seconds = cost.issue_seconds;
    Arguments& arguments = instruction.arguments;
    arguments.keep_option = option_[as_index(n)];
    // The loss starts the chain rule itself: its gradient is the number one, not a buffer.
    if (!graph_.starts_backward(node)) read_output_gradient(n, pass, instruction);
    if (inputs) read_parameters(node, instruction);
    // The part for the inputs alone needs nothing of the forward.
    if (weights) {
      read_pinned(node, kept, instruction);
      read_record(n, instruction);
    } else {
      arguments.inputs.assign(node.inputs.size(), -1);
    }
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      if (inputs) {
        write_input_gradient(node, i, kept, instruction);
      } else {
        no_input_gradient(arguments);
      }
    }
    if (weights) {
      for (const int parameter : node.parameters) {
        arguments.parameter_gradients.push_back(builder_.target_of(parameter, instruction));
      }
    }
    if (inputs) {
      set_collective(node.backward_collective, collective_lane, instruction);
      gradient_[as_index(node.output)] = -1;
    }
    if (weights) {
      weights_done_[as_index(n)] = true;
      held_[as_index(n)] = -1;
    }
    builder_.add(std::move(instruction));
  }

  int value(int v) const { return value_[as_index(v)]; }

 private:
  void set_collective(const NodeCollective& collective, Lane collective_lane,
                      Instruction& instruction) {
    builder_.set_collective(collective, instruction);
    if (instruction.channel) instruction.lane = collective_lane;
  }

  void read_output_gradient(int n, Pass pass, Instruction& instruction) {
    const NodeSpec& node = graph_.nodes[as_index(n)];
    const int gradient = gradient_[as_index(node.output)];
    // The weight part may run long after the input part.
    if (pass == Pass::BackwardInput && !weights_done_[as_index(n)]) held_[as_index(n)] = gradient;
    const bool later = pass == Pass::BackwardWeight && held_[as_index(n)] >= 0;
    const int read = later ? held_[as_index(n)] : gradient;
    expect(read >= 0, node.name + " has no gradient of its output");
    instruction.arguments.output_gradient = read;
    instruction.reads.push_back(read);
  }

  void read_pinned(const NodeSpec& node, const KeepOption& kept, Instruction& instruction) const {
    const auto pins = [&](int value) {
      return std::find(kept.pinned_values.begin(), kept.pinned_values.end(), value) !=
             kept.pinned_values.end();
    };
    for (const int input : node.inputs) {
      const bool pinned = pins(input);
      instruction.arguments.inputs.push_back(pinned ? value_[as_index(input)] : -1);
      if (pinned) instruction.reads.push_back(value_[as_index(input)]);
    }
    if (!pins(node.output)) return;
    instruction.arguments.pinned_output = value_[as_index(node.output)];
    instruction.reads.push_back(value_[as_index(node.output)]);
  }

  void read_record(int n, Instruction& instruction) const {
    const std::vector<int>& record = record_[as_index(n)];
    instruction.arguments.record = record;
    instruction.reads.insert(instruction.reads.end(), record.begin(), record.end());
  }

  // Without a channel the stage is looked at alone.
  void communicate(Instruction instruction, std::optional<Channel> channel) {
    if (channel) {
      const bool sends = instruction.operation == Operation::Send;
      const int buffer = sends ? instruction.reads[0] : instruction.writes[0];
      const ValueSpec& value = graph_.values[as_index(value_of(instruction))];
      channel->bytes = builder_.bytes(buffer);
      if (builder_.scatters(value)) {
        instruction.arguments.part = builder_.part_of_message(buffer, value);
        channel->bytes = instruction.arguments.part.elements * number_bytes(value.type);
      }
      instruction.seconds = builder_.message_seconds(channel->bytes, channel->peer);
      instruction.lane = Lane::Message;
    }
    instruction.channel = std::move(channel);
    builder_.add(std::move(instruction));
  }

  // Of which it, or its gradient, is the message.
  int value_of(const Instruction& message) const {
    if (message.arguments.value >= 0) return message.arguments.value;
    return graph_.nodes[as_index(message.node_index)].inputs[0];
  }

  Instruction make(Operation operation, const std::string& name, int node_index) const {
    Instruction instruction;
    instruction.operation = operation;
    instruction.node = name;
    instruction.node_index = node_index;
    instruction.micro_batch = micro_batch_;
    return instruction;
  }

  int new_buffer(const std::string& name, BufferKind kind, std::int64_t bytes) {
    return builder_.new_buffer(fmt::format("{}#{}", name, micro_batch_), kind, bytes);
  }

  void read_parameters(const NodeSpec& node, Instruction& instruction) const {
    for (const int parameter : node.parameters) {
      const Range& range = builder_.parameter_range(parameter);
      instruction.arguments.parameters.push_back(range);
      instruction.reads.push_back(range.buffer);
    }
  }

  static void no_input_gradient(Arguments& arguments) {
    arguments.input_gradients.push_back(-1);
    arguments.accumulated.push_back(-1);
    arguments.placements.push_back(Placement::None);
  }

  // What another input's gradient is an alias of cannot be written over.
  static bool aliases_any(const NodeSpec& node) {
    return std::find(node.gradient_aliases.begin(), node.gradient_aliases.end(), true) !=
           node.gradient_aliases.end();
  }

  static int write_in_place(const KeepOption& kept, int buffer, Instruction& instruction) {
    instruction.writes.push_back(buffer);
    if (kept.in_place_transient_bytes) instruction.transient_bytes = *kept.in_place_transient_bytes;
    return buffer;
  }

  // A second contribution is added in place where the node can do so and no other name shares the
  // storage; else into the new storage, and the old one is given back with its last name.
  void write_input_gradient(const NodeSpec& node, std::size_t i, const KeepOption& kept,
                            Instruction& instruction) {
    Arguments& arguments = instruction.arguments;
    const int input = node.inputs[i];
    const ValueSpec& value = graph_.values[as_index(input)];
    if (!value.differentiable) {
      return no_input_gradient(arguments);
    }
    const int existing = gradient_[as_index(input)];
    int buffer = -1;
    Placement placement = Placement::Fresh;
    const auto names = [&](int id) {
      return std::count(gradient_.begin(), gradient_.end(), id) +
             std::count(held_.begin(), held_.end(), id);
    };
    if (node.gradient_aliases[i] && existing < 0) {
      buffer = arguments.output_gradient;
      placement = Placement::Alias;
    } else if (existing < 0 && arguments.output_gradient >= 0 &&
               !node.overwrites_gradient.empty() && node.overwrites_gradient[i] &&
               names(arguments.output_gradient) == 1 && !aliases_any(node)) {
      buffer = write_in_place(kept, arguments.output_gradient, instruction);
      placement = Placement::Overwrite;
    } else if (existing >= 0 && !node.adds_in_place.empty() && node.adds_in_place[i] &&
               names(existing) == 1) {
      buffer = write_in_place(kept, existing, instruction);
      placement = Placement::AddInPlace;
    } else {
      if (existing >= 0) {
        placement = node.gradient_aliases[i] ? Placement::SumWithAlias : Placement::AddExisting;
      }
      buffer = new_buffer(value.name + ".gradient", BufferKind::ValueGradient, value.bytes);
      instruction.writes.push_back(buffer);
    }
    if (existing >= 0) instruction.reads.push_back(existing);
    arguments.input_gradients.push_back(buffer);
    arguments.accumulated.push_back(existing);
    arguments.placements.push_back(placement);
    gradient_[as_index(input)] = buffer;
  }

  ProgramBuilder& builder_;
  const ModelGraph& graph_;
  int micro_batch_;
  std::vector<int> value_;     // buffer of each value now
  std::vector<int> gradient_;  // buffer of each value's gradient now
  // By node: the output's gradient, from the input part of a split backward to the weight part.
  std::vector<int> held_;
  std::vector<bool> weights_done_;  // by node
  std::vector<int> option_;         // by node: the way in which it is kept
  std::vector<std::vector<int>> record_;
};

}  // namespace garonne::plan
