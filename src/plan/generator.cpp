#include "plan/generator.hpp"

#include <fmt/format.h>
#include <algorithm>

#include "base/bytes.hpp"
#include "base/collective_bytes.hpp"
#include "base/error.hpp"
#include "plan/program_builder.hpp"

namespace garonne::plan {
namespace {

std::size_t index(int id) {
  return static_cast<std::size_t>(id);
}

// Where the values of one micro-batch are, forward and backward.
class MicroBatchWriter {
 public:
  MicroBatchWriter(ProgramBuilder& builder, const ModelGraph& graph, int micro_batch)
      : builder_(builder),
        graph_(graph),
        micro_batch_(micro_batch),
        value_(graph.values.size(), -1),
        gradient_(graph.values.size(), -1),
        record_(graph.nodes.size()) {}

  void load() {
    Instruction instruction = make(Operation::Load, "micro-batch", -1);
    for (std::size_t v = 0; v < graph_.values.size(); ++v) {
      if (!graph_.values[v].loaded) continue;
      value_[v] = new_buffer(graph_.values[v].name, BufferKind::Value, graph_.values[v].bytes);
      instruction.writes.push_back(value_[v]);
    }
    instruction.arguments.inputs = instruction.writes;
    builder_.add(std::move(instruction));
  }

  // `keep` makes the node's record; a recomputation makes new buffers for the values it makes
  // again.
  void forward(int n, bool keep, bool recompute) {
    const NodeSpec& node = graph_.nodes[index(n)];
    Instruction instruction =
        make(keep ? Operation::ForwardKeep : Operation::Forward, node.name, n);
    instruction.recompute = recompute;
    const OperationCost& cost = keep ? node.forward_keep : node.forward;
    instruction.transient_bytes = cost.transient_bytes;
    instruction.seconds = cost.seconds;
    Arguments& arguments = instruction.arguments;
    for (const int input : node.inputs) arguments.inputs.push_back(value_[index(input)]);
    instruction.reads = arguments.inputs;
    read_parameters(node, instruction);
    const ValueSpec& output = graph_.values[index(node.output)];
    arguments.output = new_buffer(output.name, BufferKind::Value, output.bytes);
    value_[index(node.output)] = arguments.output;
    instruction.writes.push_back(arguments.output);
    if (keep) {
      for (std::size_t slot = 0; slot < node.private_slot_bytes.size(); ++slot) {
        arguments.record.push_back(new_buffer(fmt::format("{}.record{}", node.name, slot),
                                              BufferKind::Record, node.private_slot_bytes[slot]));
      }
      record_[index(n)] = arguments.record;
      instruction.writes.insert(instruction.writes.end(), arguments.record.begin(),
                                arguments.record.end());
    }
    builder_.add(std::move(instruction));
  }

  void emit_loss(int loss_sum, bool first) {
    Instruction instruction = make(Operation::EmitLoss, "loss", -1);
    instruction.arguments.inputs = {value_[index(graph_.loss)]};
    instruction.reads = instruction.arguments.inputs;
    if (!first) instruction.reads.push_back(loss_sum);
    instruction.writes = {loss_sum};
    instruction.arguments.output = loss_sum;
    builder_.add(std::move(instruction));
  }

  void backward(int n, Pass pass) {
    const NodeSpec& node = graph_.nodes[index(n)];
    const bool weights = pass != Pass::BackwardInput;
    const bool inputs = pass != Pass::BackwardWeight;
    const Operation operation = pass == Pass::Backward         ? Operation::Backward
                                : pass == Pass::BackwardWeight ? Operation::BackwardWeight
                                                               : Operation::BackwardInput;
    Instruction instruction = make(operation, node.name, n);
    const OperationCost& cost = pass == Pass::BackwardWeight ? node.backward_weight : node.backward;
    instruction.transient_bytes = cost.transient_bytes;
    instruction.seconds = cost.seconds;
    Arguments& arguments = instruction.arguments;
    // The loss starts the chain rule itself: its gradient is the number one, not a buffer.
    if (node.output != graph_.loss) {
      arguments.output_gradient = gradient_[index(node.output)];
      expect(arguments.output_gradient >= 0, node.name + " has no gradient of its output");
      instruction.reads.push_back(arguments.output_gradient);
    }
    if (inputs) read_parameters(node, instruction);
    for (const int input : node.inputs) {
      const bool pinned = weights && std::find(node.pinned_values.begin(), node.pinned_values.end(),
                                               input) != node.pinned_values.end();
      arguments.inputs.push_back(pinned ? value_[index(input)] : -1);
      if (pinned) instruction.reads.push_back(value_[index(input)]);
    }
    if (weights && std::find(node.pinned_values.begin(), node.pinned_values.end(), node.output) !=
                       node.pinned_values.end()) {
      arguments.pinned_output = value_[index(node.output)];
      instruction.reads.push_back(arguments.pinned_output);
    }
    if (weights) arguments.record = record_[index(n)];
    instruction.reads.insert(instruction.reads.end(), arguments.record.begin(),
                             arguments.record.end());
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      if (inputs) {
        write_input_gradient(node, i, instruction);
      } else {
        arguments.input_gradients.push_back(-1);
        arguments.accumulated.push_back(-1);
      }
    }
    if (weights) {
      for (const int parameter : node.parameters) {
        arguments.parameter_gradients.push_back(builder_.target_of(parameter, instruction));
      }
    }
    if (inputs) gradient_[index(node.output)] = -1;
    builder_.add(std::move(instruction));
  }

  int value(int v) const { return value_[index(v)]; }

 private:
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
      const int buffer = builder_.parameter_buffer(parameter);
      instruction.arguments.parameters.push_back(buffer);
      instruction.reads.push_back(buffer);
    }
  }

  // A second contribution is added in place where the node can do so and no other name shares the
  // storage; else into the new storage, and the old one is given back with its last name.
  void write_input_gradient(const NodeSpec& node, std::size_t i, Instruction& instruction) {
    Arguments& arguments = instruction.arguments;
    const int input = node.inputs[i];
    const ValueSpec& value = graph_.values[index(input)];
    if (!value.differentiable) {
      arguments.input_gradients.push_back(-1);
      arguments.accumulated.push_back(-1);
      return;
    }
    const int existing = gradient_[index(input)];
    int buffer = -1;
    const auto names = [&](int id) { return std::count(gradient_.begin(), gradient_.end(), id); };
    if (node.gradient_aliases[i] && existing < 0) {
      buffer = arguments.output_gradient;
    } else if (existing < 0 && arguments.output_gradient >= 0 &&
               !node.overwrites_gradient.empty() && node.overwrites_gradient[i] &&
               names(arguments.output_gradient) == 1) {
      buffer = arguments.output_gradient;
      instruction.writes.push_back(buffer);
    } else if (existing >= 0 && !node.adds_in_place.empty() && node.adds_in_place[i] &&
               names(existing) == 1) {
      buffer = existing;
      instruction.writes.push_back(buffer);
    } else {
      buffer = new_buffer(value.name + ".gradient", BufferKind::ValueGradient, value.bytes);
      instruction.writes.push_back(buffer);
    }
    if (existing >= 0) instruction.reads.push_back(existing);
    arguments.input_gradients.push_back(buffer);
    arguments.accumulated.push_back(existing);
    gradient_[index(input)] = buffer;
  }

  ProgramBuilder& builder_;
  const ModelGraph& graph_;
  int micro_batch_;
  std::vector<int> value_;     // buffer of each value now
  std::vector<int> gradient_;  // buffer of each value's gradient now
  std::vector<std::vector<int>> record_;
};

}  // namespace

Program make_training_program(const ModelGraph& graph, const StepShape& step,
                              const StepSchedule& schedule) {
  check_model_graph(graph);
  expect(graph.loss >= 0, "a training Program needs a loss");
  expect(schedule.of_micro_batch.size() == index(step.micro_batches), "one schedule a micro-batch");
  ProgramBuilder builder(graph, step);
  builder.add_parameters(/*training=*/true);
  builder.make_buckets();
  for (int m = 0; m < step.micro_batches; ++m) {
    MicroBatchWriter writer(builder, graph, m);
    writer.load();
    std::vector<bool> ran(graph.nodes.size(), false);
    const int number = schedule.of_micro_batch[index(m)];
    for (const NodeStep& node : schedule.schedules.at(index(number))) {
      if (!node.forward()) {
        writer.backward(node.node, node.pass);
        const bool last = m + 1 == step.micro_batches;
        if (last && node.pass != Pass::BackwardInput) builder.reduce_finished_buckets(node.node);
        continue;
      }
      const bool first = !ran[index(node.node)];
      writer.forward(node.node, node.keep, /*recompute=*/!first);
      if (first && graph.nodes[index(node.node)].output == graph.loss) {
        writer.emit_loss(builder.loss_sum(), m == 0);
      }
      ran[index(node.node)] = true;
    }
  }
  builder.finish_step();
  Program program = builder.take();
  assign_frees(program);
  return program;
}

Program make_forward_program(const ModelGraph& graph, const StepShape& step, int output) {
  check_model_graph(graph);
  ProgramBuilder builder(graph, step);
  builder.add_parameters(/*training=*/true);
  MicroBatchWriter writer(builder, graph, 0);
  writer.load();
  for (int n = 0; n < static_cast<int>(graph.nodes.size()); ++n) writer.forward(n, false, false);
  builder.report(writer.value(output));
  Program program = builder.take();
  assign_frees(program);
  return program;
}

void assign_frees(Program& program) {
  std::vector<int> last(program.buffers.size(), -1);
  for (int i = 0; i < static_cast<int>(program.instructions.size()); ++i) {
    const Instruction& instruction = program.instructions[index(i)];
    for (const int buffer : instruction.reads) last[index(buffer)] = i;
    for (const int buffer : instruction.writes) last[index(buffer)] = i;
    if (instruction.completes < 0) continue;
    const Instruction& waited = program.instructions[index(instruction.completes)];
    for (const int buffer : waited.reads) last[index(buffer)] = i;
    for (const int buffer : waited.writes) last[index(buffer)] = i;
  }
  for (std::size_t buffer = 0; buffer < last.size(); ++buffer) {
    if (last[buffer] >= 0 && !program.buffers[buffer].live_at_end) {
      program.instructions[index(last[buffer])].frees.push_back(static_cast<int>(buffer));
    }
  }
}

}  // namespace garonne::plan
