#include "plan/generator.hpp"

#include <fmt/format.h>
#include <algorithm>

#include "base/bytes.hpp"
#include "base/collective_bytes.hpp"
#include "base/error.hpp"
#include "plan/gathers.hpp"
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
        held_(graph.nodes.size(), -1),
        weights_done_(graph.nodes.size(), false),
        record_(graph.nodes.size()) {}

  // `received`: values of other stages come by messages of their own.
  void load(bool received) {
    Instruction instruction = make(Operation::Load, "micro-batch", -1);
    for (std::size_t v = 0; v < graph_.values.size(); ++v) {
      if (!graph_.values[v].loaded || (received && graph_.values[v].differentiable)) continue;
      value_[v] = new_buffer(graph_.values[v].name, BufferKind::Value, graph_.values[v].bytes);
      instruction.writes.push_back(value_[v]);
    }
    instruction.arguments.inputs = instruction.writes;
    builder_.add(std::move(instruction));
  }

  // Posts the receive of the chunk's input; the instruction to wait for.
  void receive_value(int v, Channel channel) {
    Instruction instruction = make(Operation::Receive, graph_.values[index(v)].name, -1);
    value_[index(v)] =
        new_buffer(graph_.values[index(v)].name, BufferKind::Value, graph_.values[index(v)].bytes);
    instruction.writes = {value_[index(v)]};
    instruction.arguments.output = value_[index(v)];
    communicate(std::move(instruction), std::move(channel));
  }

  void send_gradient(int v, Channel channel) {
    Instruction instruction = make(Operation::Send, graph_.values[index(v)].name + ".gradient", -1);
    expect(gradient_[index(v)] >= 0, instruction.node + " is sent and was not made");
    instruction.reads = {gradient_[index(v)]};
    instruction.arguments.inputs = instruction.reads;
    gradient_[index(v)] = -1;
    communicate(std::move(instruction), std::move(channel));
  }

  // The forward of a node that hands over.
  void send_value(int n, std::optional<Channel> channel) {
    const NodeSpec& node = graph_.nodes[index(n)];
    Instruction instruction = make(Operation::Send, node.name, n);
    instruction.reads = {value_[index(node.inputs[0])]};
    instruction.arguments.inputs = instruction.reads;
    const ValueSpec& output = graph_.values[index(node.output)];
    value_[index(node.output)] = new_buffer(output.name, BufferKind::Value, 0);
    instruction.writes = {value_[index(node.output)]};
    instruction.arguments.output = value_[index(node.output)];
    communicate(std::move(instruction), std::move(channel));
  }

  // Its backward.
  void receive_gradient(int n, std::optional<Channel> channel) {
    const NodeSpec& node = graph_.nodes[index(n)];
    const int input = node.inputs[0];
    Instruction instruction = make(Operation::Receive, node.name, n);
    const ValueSpec& value = graph_.values[index(input)];
    gradient_[index(input)] =
        new_buffer(value.name + ".gradient", BufferKind::ValueGradient, value.bytes);
    instruction.writes = {gradient_[index(input)]};
    instruction.arguments.output = gradient_[index(input)];
    communicate(std::move(instruction), std::move(channel));
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
    builder_.set_collective(node.forward_collective, instruction);
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
    if (!graph_.starts_backward(node)) {
      // The weight part may run long after the input part.
      if (pass == Pass::BackwardInput && !weights_done_[index(n)])
        held_[index(n)] = gradient_[index(node.output)];
      const bool later = pass == Pass::BackwardWeight && held_[index(n)] >= 0;
      arguments.output_gradient = later ? held_[index(n)] : gradient_[index(node.output)];
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
    if (inputs) {
      builder_.set_collective(node.backward_collective, instruction);
      gradient_[index(node.output)] = -1;
    }
    if (weights) {
      weights_done_[index(n)] = true;
      held_[index(n)] = -1;
    }
    builder_.add(std::move(instruction));
  }

  int value(int v) const { return value_[index(v)]; }

 private:
  // Without a channel the stage is looked at alone.
  void communicate(Instruction instruction, std::optional<Channel> channel) {
    if (channel) {
      channel->bytes = bytes_of(instruction);
      instruction.seconds = builder_.message_seconds(channel->bytes);
    }
    instruction.channel = std::move(channel);
    builder_.add(std::move(instruction));
  }

  std::int64_t bytes_of(const Instruction& message) const {
    const bool sends = message.operation == Operation::Send;
    return builder_.bytes(sends ? message.reads[0] : message.writes[0]);
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
    const auto names = [&](int id) {
      return std::count(gradient_.begin(), gradient_.end(), id) +
             std::count(held_.begin(), held_.end(), id);
    };
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
  // By node: the output's gradient, from the input part of a split backward to the weight part.
  std::vector<int> held_;
  std::vector<bool> weights_done_;  // by node
  std::vector<std::vector<int>> record_;
};

// Where each step of a micro-batch's schedule runs: with the forward or the backward of its chunk,
// or with the weight part of the backward.
struct ChunkSteps {
  NodeSchedule forward;
  NodeSchedule backward;
};

std::vector<ChunkSteps> cut_by_chunk(const ModelGraph& graph, const NodeSchedule& schedule) {
  std::vector<ChunkSteps> chunks(index(graph.chunks()));
  std::vector<bool> ran(graph.nodes.size(), false);
  NodeSchedule again;  // recomputations go with the step that they are for
  for (const NodeStep& step : schedule) {
    if (step.forward() && ran[index(step.node)]) {
      again.push_back(step);
      continue;
    }
    ran[index(step.node)] = true;
    ChunkSteps& chunk = chunks[index(graph.nodes[index(step.node)].chunk)];
    NodeSchedule& steps = step.forward() ? chunk.forward : chunk.backward;
    steps.insert(steps.end(), again.begin(), again.end());
    again.clear();
    steps.push_back(step);
  }
  expect(again.empty(), "a schedule ends with a forward that nothing needs");
  return chunks;
}

// Gradients that were sent and may still be on their way, of each chunk: more would deadlock in no
// schedule, fewer in some.
constexpr std::size_t gradients_on_their_way = 2;

// Writes the micro-batches of a step in the order of the stage's pipeline schedule.
class StepWriter {
 public:
  StepWriter(ProgramBuilder& builder, const ModelGraph& graph, const StepShape& step,
             const StepSchedule& schedule)
      : builder_(builder),
        graph_(graph),
        step_(step),
        order_(step.pipeline.order),
        ran_(index(step.micro_batches), std::vector<bool>(graph.nodes.size(), false)),
        received_(index(graph.chunks()), -1),
        hands_over_(index(graph.chunks()), -1),
        sent_gradients_(index(graph.chunks())) {
    for (int m = 0; m < step.micro_batches; ++m) {
      writers_.emplace_back(builder, graph, m);
      if (step.pipeline.order.empty()) {
        for (int c = 0; c < graph.chunks(); ++c) order_.push_back({PipelineWork::Forward, c, m});
        for (int c = graph.chunks() - 1; c >= 0; --c)
          order_.push_back({PipelineWork::Backward, c, m});
      }
    }
    for (const auto& micro_batch : schedule.schedules)
      steps_.push_back(cut_by_chunk(graph, micro_batch));
    steps_of_ = schedule.of_micro_batch;
    find_boundaries();
    waits_.resize(order_.size(), -1);
    sent_.resize(index(step.micro_batches) * index(graph.chunks()), -1);
    loaded_.resize(index(step.micro_batches), false);
  }

  void write() {
    for (std::size_t k = 0; k < order_.size(); ++k) {
      const PipelineOperation& operation = order_[k];
      if (!loaded_[index(operation.micro_batch)]) {
        writers_[index(operation.micro_batch)].load(in_pipeline());
        loaded_[index(operation.micro_batch)] = true;
      }
      post_receive(k);
      if (k + 1 < order_.size()) post_receive(k + 1);
      if (waits_[k] >= 0) builder_.wait(waits_[k]);
      run(operation);
    }
    for (auto& chunk : sent_gradients_) {
      for (const int instruction : chunk) builder_.wait(instruction);
    }
  }

  // Forwards alone; `output` is the caller's, -1 = this stage has none to give.
  void write_forward(int output) {
    std::erase_if(order_,
                  [](const auto& operation) { return operation.work != PipelineWork::Forward; });
    waits_.resize(order_.size());
    write();
    for (const int instruction : sent_) {
      if (instruction >= 0) builder_.wait(instruction);
    }
    builder_.report(output < 0 ? -1 : writers_[0].value(output));
  }

 private:
  bool in_pipeline() const { return !step_.pipeline.chunks.empty(); }

  void find_boundaries() {
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n) {
      const NodeSpec& node = graph_.nodes[n];
      if (node.hands_over) hands_over_[index(node.chunk)] = static_cast<int>(n);
      for (const int input : node.inputs) {
        const ValueSpec& value = graph_.values[index(input)];
        if (value.loaded && value.differentiable) received_[index(node.chunk)] = input;
      }
    }
  }

  // Forward messages cross the boundary behind part `boundary`, gradients come back over it.
  Channel channel(const char* kind, int peer, int boundary, bool forward, int micro_batch) const {
    const PipelinePlace& place = step_.pipeline;
    constexpr int most_tags = 32768;
    Channel result;
    result.kind = kind;
    result.group = "pipeline";
    result.members = place.group;
    result.peer = peer;
    result.tag =
        ((2 * boundary + (forward ? 0 : 1)) * step_.micro_batches + micro_batch) % most_tags;
    return result;
  }

  // Once, for the operation at `k`; the message travels while the one before it computes.
  void post_receive(std::size_t k) {
    if (!in_pipeline() || waits_[k] >= 0) return;
    const PipelineOperation& operation = order_[k];
    const PipelinePlace::Chunk& place = step_.pipeline.chunks[index(operation.chunk)];
    MicroBatchWriter& writer = writers_[index(operation.micro_batch)];
    const int m = operation.micro_batch;
    if (operation.work == PipelineWork::Forward && place.before >= 0) {
      writer.receive_value(received_[index(operation.chunk)],
                           channel("receive", place.before, place.part - 1, true, m));
      waits_[k] = builder_.last_instruction();
    } else if (gives_input_gradient(operation.work) && place.after >= 0) {
      writer.receive_gradient(hands_over_[index(operation.chunk)],
                              channel("receive", place.after, place.part, false, m));
      waits_[k] = builder_.last_instruction();
    }
  }

  void run(const PipelineOperation& operation) {
    const int m = operation.micro_batch;
    const ChunkSteps& steps = steps_[index(steps_of_[index(m)])][index(operation.chunk)];
    switch (operation.work) {
      case PipelineWork::Forward:
        for (const NodeStep& step : steps.forward) forward(step, m);
        return;
      case PipelineWork::Backward:
        for (const NodeStep& step : steps.backward) backward(step, m);
        return send_gradient(operation);
      case PipelineWork::BackwardInput:
        for (const NodeStep& step : steps.backward) {
          if (step.forward() || step.pass != Pass::BackwardWeight) backward(step, m);
        }
        return send_gradient(operation);
      case PipelineWork::BackwardWeight:
        for (const NodeStep& step : steps.backward) {
          if (!step.forward() && step.pass == Pass::BackwardWeight) backward(step, m);
        }
        return;
      case PipelineWork::Recompute:
        return;  // with the backward, which knows what it needs
    }
  }

  void forward(const NodeStep& step, int m) {
    const NodeSpec& node = graph_.nodes[index(step.node)];
    MicroBatchWriter& writer = writers_[index(m)];
    const bool first = !ran_[index(m)][index(step.node)];
    ran_[index(m)][index(step.node)] = true;
    if (node.hands_over) {
      if (!in_pipeline()) return writer.send_value(step.node, std::nullopt);
      const PipelinePlace::Chunk& place = step_.pipeline.chunks[index(node.chunk)];
      writer.send_value(step.node, channel("send", place.after, place.part, true, m));
      sent_[index(m) * index(graph_.chunks()) + index(node.chunk)] = builder_.last_instruction();
      return;
    }
    writer.forward(step.node, step.keep, /*recompute=*/!first);
    if (first && node.output == graph_.loss && builder_.loss_sum() >= 0) {
      writer.emit_loss(builder_.loss_sum(), !loss_emitted_);
      loss_emitted_ = true;
    }
  }

  void backward(const NodeStep& step, int m) {
    if (step.forward()) return forward(step, m);
    const NodeSpec& node = graph_.nodes[index(step.node)];
    if (node.hands_over) {
      if (!in_pipeline()) return writers_[index(m)].receive_gradient(step.node, std::nullopt);
      // The gradient is here, so what it is the gradient of has long arrived.
      builder_.wait(sent_[index(m) * index(graph_.chunks()) + index(node.chunk)]);
      return;
    }
    writers_[index(m)].backward(step.node, step.pass);
    if (step.pass != Pass::BackwardInput) builder_.finished_weights(step.node, m);
  }

  void send_gradient(const PipelineOperation& operation) {
    const int value = received_[index(operation.chunk)];
    if (!in_pipeline() || value < 0) return;
    const PipelinePlace::Chunk& place = step_.pipeline.chunks[index(operation.chunk)];
    auto& on_their_way = sent_gradients_[index(operation.chunk)];
    if (on_their_way.size() == gradients_on_their_way) {
      builder_.wait(on_their_way.front());
      on_their_way.erase(on_their_way.begin());
    }
    writers_[index(operation.micro_batch)].send_gradient(
        value, channel("send", place.before, place.part - 1, false, operation.micro_batch));
    on_their_way.push_back(builder_.last_instruction());
  }

  ProgramBuilder& builder_;
  const ModelGraph& graph_;
  const StepShape& step_;
  std::vector<PipelineOperation> order_;
  std::vector<MicroBatchWriter> writers_;
  std::vector<std::vector<ChunkSteps>> steps_;    // by schedule and chunk
  std::vector<int> steps_of_;                     // the schedule of a micro-batch
  std::vector<std::vector<bool>> ran_;            // by micro-batch and node
  std::vector<int> received_;                     // by chunk: the value from another stage
  std::vector<int> hands_over_;                   // by chunk: the node
  std::vector<int> waits_;                        // by operation: its receive
  std::vector<int> sent_;                         // by micro-batch and chunk: the send of the value
  std::vector<std::vector<int>> sent_gradients_;  // by chunk, oldest first
  std::vector<bool> loaded_;                      // by micro-batch
  bool loss_emitted_ = false;
};

}  // namespace

Program make_training_program(const ModelGraph& graph, const StepShape& step,
                              const StepSchedule& schedule) {
  check_model_graph(graph);
  expect(std::any_of(graph.nodes.begin(), graph.nodes.end(),
                     [&](const NodeSpec& node) { return graph.starts_backward(node); }),
         "a training Program needs a loss, or a stage that follows");
  expect(schedule.of_micro_batch.size() == index(step.micro_batches), "one schedule a micro-batch");
  ProgramBuilder builder(graph, step);
  builder.make_buckets();
  builder.add_parameters(/*training=*/true);
  builder.add_gradients();
  StepWriter(builder, graph, step, schedule).write();
  builder.finish_step();
  Program program = builder.take();
  if (program.zero == 3) place_gathers(program, step);
  assign_frees(program);
  return program;
}

Program make_forward_program(const ModelGraph& graph, const StepShape& step, int output) {
  check_model_graph(graph);
  ProgramBuilder builder(graph, step);
  if (builder.in_shards()) builder.make_buckets();
  builder.add_parameters(/*training=*/true);
  StepShape once = step;
  once.micro_batches = 1;
  once.pipeline.order.clear();
  NodeSchedule schedule;
  for (int n = 0; n < static_cast<int>(graph.nodes.size()); ++n)
    schedule.push_back({n, Pass::Forward, false});
  StepWriter writer(builder, graph, once, same_for_all(std::move(schedule), 1));
  writer.write_forward(output);
  Program program = builder.take();
  if (program.zero == 3) place_gathers(program, step);
  assign_frees(program);
  return program;
}

std::int64_t static_bytes(const ModelGraph& graph, const StepShape& step) {
  ProgramBuilder builder(graph, step);
  if (builder.in_shards()) builder.make_buckets();
  builder.add_parameters(/*training=*/true);
  const Program program = builder.take();
  std::int64_t bytes = 0;
  for (const Buffer& buffer : program.buffers) bytes += buffer.live_at_end ? buffer.bytes : 0;
  return bytes;
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
