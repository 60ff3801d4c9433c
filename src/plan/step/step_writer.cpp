#include "plan/step/step_writer.hpp"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/index.hpp"
#include "plan/step/micro_batch_writer.hpp"
#include "plan/step/passes_in_turn.hpp"

namespace garonne::plan {
namespace {

// Where each step of a micro-batch's schedule runs: with the forward or the backward of its chunk,
// or with the weight part of the backward.
struct ChunkSteps {
  NodeSchedule forward;
  NodeSchedule backward;
};

// By chunk: a number that chunks share where one reads what another makes. Between others all goes
// over other stages, so that nothing of one is recomputed for the other.
std::vector<int> groups_of_chunks(const ModelGraph& graph) {
  std::vector<int> group(as_index(graph.chunks()));
  std::iota(group.begin(), group.end(), 0);
  std::vector<int> chunk_of(graph.values.size(), -1);
  for (const NodeSpec& node : graph.nodes) {
    for (const int input : node.inputs) {
      const int maker = chunk_of[as_index(input)];
      if (maker < 0) continue;
      const int mine = group[as_index(node.chunk)];
      const int other = group[as_index(maker)];
      std::replace(group.begin(), group.end(), mine, other);
    }
    chunk_of[as_index(node.output)] = node.chunk;
  }
  return group;
}

std::vector<ChunkSteps> cut_by_chunk(const ModelGraph& graph, const NodeSchedule& schedule) {
  const std::vector<int> group_of = groups_of_chunks(graph);
  std::vector<ChunkSteps> chunks(as_index(graph.chunks()));
  std::vector<bool> ran(graph.nodes.size(), false);
  // Recomputations go with the step that they are for: the next of their group of chunks. Solvers
  // take all chunks for one chain, and with schedules of two directions a micro-batch comes to some
  // of them only.
  std::vector<NodeSchedule> again(chunks.size());
  for (const NodeStep& step : schedule) {
    const auto chunk = as_index(graph.nodes[as_index(step.node)].chunk);
    NodeSchedule& pending = again[as_index(group_of[chunk])];
    if (step.forward() && ran[as_index(step.node)]) {
      pending.push_back(step);
      continue;
    }
    ran[as_index(step.node)] = true;
    NodeSchedule& steps = step.forward() ? chunks[chunk].forward : chunks[chunk].backward;
    steps.insert(steps.end(), pending.begin(), pending.end());
    pending.clear();
    steps.push_back(step);
  }
  expect(std::all_of(again.begin(), again.end(), [](const auto& left) { return left.empty(); }),
         "a schedule ends with a forward that nothing needs");
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
        overlaps_(passes_can_overlap(step)),
        order_(step.pipeline.order),
        ran_(as_index(step.micro_batches), std::vector<bool>(graph.nodes.size(), false)),
        received_(as_index(graph.chunks())),
        hands_over_(as_index(graph.chunks())),
        sent_gradients_(as_index(graph.chunks())) {
    for (int m = 0; m < step.micro_batches; ++m) {
      writers_.emplace_back(builder, graph, m);
      if (step.pipeline.order.empty()) {
        const int chunks = step.pipeline.directions > 1 ? 1 : graph.chunks();
        for (int c = 0; c < chunks; ++c) order_.push_back({PipelineWork::Forward, c, m});
        for (int c = chunks - 1; c >= 0; --c) order_.push_back({PipelineWork::Backward, c, m});
      }
    }
    for (const auto& micro_batch : schedule.schedules)
      steps_.push_back(cut_by_chunk(graph, micro_batch));
    steps_of_ = schedule.of_micro_batch;
    find_boundaries();
    posted_.resize(order_.size(), false);
    waits_.resize(order_.size());
    sent_.resize(as_index(step.micro_batches) * graph.nodes.size(), -1);
    loaded_.resize(as_index(step.micro_batches), false);
  }

  void write() {
    const std::size_t to_last_message = operations_to_last_message();
    if (step_.messages_first && to_last_message > 0) builder_.hold_waits_for_reductions();
    for (std::size_t k = 0; k < order_.size();) {
      const std::size_t end = end_of_turn(k);
      for (std::size_t i = k; i < end; ++i) load(order_[i].micro_batch);
      post_receives(k, end);
      if (end < order_.size()) post_receives(end, end_of_turn(end));
      for (std::size_t i = k; i < end; ++i) {
        for (const int instruction : waits_[i]) {
          builder_.wait(instruction);
          writers_[as_index(order_[i].micro_batch)].gather_received(instruction);
        }
      }
      if (end - k > 1) {
        run_together(order_[k], order_[k + 1]);
      } else {
        run(order_[k]);
      }
      if (k < to_last_message && to_last_message <= end) builder_.allow_waits_for_reductions();
      k = end;
    }
    for (auto& chunk : sent_gradients_) {
      for (const auto& messages : chunk) {
        for (const int instruction : messages) builder_.wait(instruction);
      }
    }
  }

  // Forwards alone; `output` is the caller's, -1 = this stage has none to give.
  void write_forward(int output) {
    std::erase_if(order_,
                  [](const auto& operation) { return operation.work != PipelineWork::Forward; });
    posted_.resize(order_.size());
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
      if (node.hands_over) hands_over_[as_index(node.chunk)].push_back(static_cast<int>(n));
    }
    for (std::size_t v = 0; v < graph_.values.size(); ++v) {
      const int chunk = graph_.values[v].received_by;
      if (chunk >= 0) received_[as_index(chunk)].push_back(static_cast<int>(v));
    }
  }

  // So many of the order are done when the last message to another stage is on its way; 0 = there
  // is none.
  std::size_t operations_to_last_message() const {
    const auto sends = [&](const PipelineOperation& operation) {
      const PipelinePlace::Chunk& place = step_.pipeline.chunks[as_index(operation.chunk)];
      const bool value = operation.work == PipelineWork::Forward && place.after >= 0;
      const bool gradient = gives_input_gradient(operation.work) && place.before >= 0;
      return (value && !hands_over_[as_index(operation.chunk)].empty()) ||
             (gradient && !received_[as_index(operation.chunk)].empty());
    };
    if (!in_pipeline()) return 0;
    return static_cast<std::size_t>(order_.rend() -
                                    std::find_if(order_.rbegin(), order_.rend(), sends));
  }

  // Forward messages cross the boundary behind part `boundary`, gradients come back over it. The
  // `value`-th of those that cross it has lanes of its own: over NCCL a message that stands behind
  // another one of its lane would hold up all that is put after it.
  Channel channel(const char* kind, int peer, int boundary, std::size_t value, bool forward,
                  int micro_batch) const {
    const PipelinePlace& place = step_.pipeline;
    // All boundaries have as many numbers: for the values of the one that most of them cross.
    const int boundaries =
        static_cast<int>(place.group.size() * place.chunks.size()) / place.directions - 1;
    const int values = place.lane_numbers / (2 * boundaries);
    expect(values * 2 * boundaries == place.lane_numbers, "lanes are of boundaries between parts");
    // Transports promise tags below 32768; what wraps around meets in its order.
    const int rounds = std::max(1, 32768 / place.lane_numbers);
    Channel result;
    result.kind = kind;
    result.group = GroupAxis::Pipeline;
    result.members = place.group;
    result.peer = peer;
    const int number = boundary * values + static_cast<int>(value) % values;
    result.tag = micro_batch % rounds * place.lane_numbers + 2 * number + (forward ? 0 : 1);
    return result;
  }

  void load(int micro_batch) {
    if (loaded_[as_index(micro_batch)]) return;
    writers_[as_index(micro_batch)].load(in_pipeline());
    loaded_[as_index(micro_batch)] = true;
  }

  // Whether the step is a pass that meets the tensor group.
  bool meets(const NodeStep& step) const {
    const NodeSpec& node = graph_.nodes[as_index(step.node)];
    if (node.hands_over) return false;
    if (step.forward()) return !node.forward_collective.kind.empty();
    return step.pass != Pass::BackwardWeight && !node.backward_collective.kind.empty();
  }

  // Operations take turns: one by one, or two that overlap. Messages travel beside them in any
  // case.
  std::size_t end_of_turn(std::size_t k) const {
    if (!overlaps_ || !order_[k].overlaps_next || k + 1 == order_.size()) return k + 1;
    for (std::size_t i = k; i < k + 2; ++i) {
      const std::vector<NodeStep> steps = steps_of(order_[i]);
      if (std::any_of(steps.begin(), steps.end(), [&](const auto& step) { return meets(step); }))
        return k + 2;
    }
    return k + 1;
  }

  void post_receives(std::size_t k, std::size_t end) {
    for (; k < end; ++k) post_receive(k);
  }

  // Once, for the operation at `k`; the message travels while what comes before its turn computes.
  void post_receive(std::size_t k) {
    if (!in_pipeline() || posted_[k]) return;
    posted_[k] = true;
    const PipelineOperation& operation = order_[k];
    const PipelinePlace::Chunk& place = step_.pipeline.chunks[as_index(operation.chunk)];
    MicroBatchWriter& writer = writers_[as_index(operation.micro_batch)];
    const int m = operation.micro_batch;
    if (operation.work == PipelineWork::Forward && place.before >= 0) {
      const auto& values = received_[as_index(operation.chunk)];
      for (std::size_t v = 0; v < values.size(); ++v) {
        writer.receive_value(values[v],
                             channel("receive", place.before, place.part - 1, v, true, m));
        waits_[k].push_back(builder_.last_instruction());
      }
    } else if (gives_input_gradient(operation.work) && place.after >= 0) {
      const auto& nodes = hands_over_[as_index(operation.chunk)];
      for (std::size_t v = 0; v < nodes.size(); ++v) {
        writer.receive_gradient(nodes[v], channel("receive", place.after, place.part, v, false, m));
        waits_[k].push_back(builder_.last_instruction());
      }
    }
  }

  // What the operation does, in order.
  std::vector<NodeStep> steps_of(const PipelineOperation& operation) const {
    const auto schedule = as_index(steps_of_[as_index(operation.micro_batch)]);
    const ChunkSteps& chunk = steps_[schedule][as_index(operation.chunk)];
    if (operation.work == PipelineWork::Forward) return chunk.forward;
    expect(operation.work != PipelineWork::Recompute,
           "a stage of a schedule that runs forwards again");
    std::vector<NodeStep> steps = chunk.backward;
    if (operation.work == PipelineWork::Backward) return steps;
    const bool of_weights = operation.work == PipelineWork::BackwardWeight;
    std::erase_if(steps, [&](const NodeStep& step) {
      return of_weights != (!step.forward() && step.pass == Pass::BackwardWeight);
    });
    return steps;
  }

  void run(const PipelineOperation& operation) {
    for (const NodeStep& step : steps_of(operation)) write_pass(step, operation.micro_batch);
    end(operation);
  }

  // One of two operations whose passes overlap.
  struct Half {
    const PipelineOperation& operation;
    std::vector<NodeStep> steps;
    std::size_t next = 0;  // of the steps
    int exchanging = -1;   // the pass whose collective is under way
    bool done = false;
  };

  // By turns, each up to its next collective, which goes on while the other one computes.
  void run_together(const PipelineOperation& first, const PipelineOperation& second) {
    Half one{first, steps_of(first)};
    Half other{second, steps_of(second)};
    while (!one.done || !other.done) {
      if (!one.done) {
        go_on(one, other.done);
        if (one.done) end(first);
      }
      go_on(other, one.done);
    }
    // What waits for its room among gradients on their way comes behind what the first sends.
    end(second);
  }

  void end(const PipelineOperation& operation) {
    if (gives_input_gradient(operation.work)) send_gradient(operation);
  }

  void go_on(Half& half, bool alone) {
    if (half.done) return;
    if (half.exchanging >= 0) builder_.wait(std::exchange(half.exchanging, -1));
    while (half.next < half.steps.size()) {
      const NodeStep& step = half.steps[half.next++];
      // The loss is added to the sum at once.
      const bool beside =
          !alone && meets(step) && graph_.nodes[as_index(step.node)].output != graph_.loss;
      write_pass(step, half.operation.micro_batch, beside ? Lane::Collective : Lane::Compute);
      if (!beside) continue;
      half.exchanging = last_pass_;
      return;
    }
    half.done = true;
  }

  // `collective_lane`: the lane of its collective; on any other than Compute it is to be waited
  // for.
  void write_pass(const NodeStep& step, int m, Lane collective_lane = Lane::Compute) {
    if (step.forward()) return forward(step, m, collective_lane);
    backward(step, m, collective_lane);
  }

  void forward(const NodeStep& step, int m, Lane collective_lane) {
    const NodeSpec& node = graph_.nodes[as_index(step.node)];
    MicroBatchWriter& writer = writers_[as_index(m)];
    const bool first = !ran_[as_index(m)][as_index(step.node)];
    ran_[as_index(m)][as_index(step.node)] = true;
    if (node.hands_over) {
      expect(first, node.name + " hands over more than once");
      if (!in_pipeline()) return writer.send_value(step.node, std::nullopt);
      const PipelinePlace::Chunk& place = step_.pipeline.chunks[as_index(node.chunk)];
      const auto& nodes = hands_over_[as_index(node.chunk)];
      const auto v = static_cast<std::size_t>(
          std::lower_bound(nodes.begin(), nodes.end(), step.node) - nodes.begin());
      writer.send_value(step.node, channel("send", place.after, place.part, v, true, m));
      sent_[as_index(m) * graph_.nodes.size() + as_index(step.node)] = builder_.last_instruction();
      return;
    }
    writer.forward(step.node, step.option, /*recompute=*/!first, collective_lane);
    last_pass_ = builder_.last_instruction();
    if (first && node.output == graph_.loss && builder_.loss_sum() >= 0) {
      writer.emit_loss(builder_.loss_sum(), !loss_emitted_);
      loss_emitted_ = true;
    }
  }

  void backward(const NodeStep& step, int m, Lane collective_lane) {
    const NodeSpec& node = graph_.nodes[as_index(step.node)];
    if (node.hands_over) {
      if (!in_pipeline()) return writers_[as_index(m)].receive_gradient(step.node, std::nullopt);
      // The gradient is here, so what it is the gradient of has long arrived.
      builder_.wait(sent_[as_index(m) * graph_.nodes.size() + as_index(step.node)]);
      return;
    }
    writers_[as_index(m)].backward(step.node, step.pass, collective_lane);
    last_pass_ = builder_.last_instruction();
    if (step.pass != Pass::BackwardInput) builder_.finished_weights(step.node, m);
  }

  void send_gradient(const PipelineOperation& operation) {
    const std::vector<int>& values = received_[as_index(operation.chunk)];
    if (!in_pipeline() || values.empty()) return;
    const PipelinePlace::Chunk& place = step_.pipeline.chunks[as_index(operation.chunk)];
    auto& on_their_way = sent_gradients_[as_index(operation.chunk)];
    if (on_their_way.size() == gradients_on_their_way) {
      for (const int instruction : on_their_way.front()) builder_.wait(instruction);
      on_their_way.erase(on_their_way.begin());
    }
    on_their_way.emplace_back();
    for (std::size_t v = 0; v < values.size(); ++v) {
      writers_[as_index(operation.micro_batch)].send_gradient(
          values[v],
          channel("send", place.before, place.part - 1, v, false, operation.micro_batch));
      on_their_way.back().push_back(builder_.last_instruction());
    }
  }

  ProgramBuilder& builder_;
  const ModelGraph& graph_;
  const StepShape& step_;
  const bool overlaps_;
  std::vector<PipelineOperation> order_;
  std::vector<MicroBatchWriter> writers_;
  std::vector<std::vector<ChunkSteps>> steps_;  // by schedule and chunk
  std::vector<int> steps_of_;                   // the schedule of a micro-batch
  std::vector<std::vector<bool>> ran_;          // by micro-batch and node
  std::vector<std::vector<int>> received_;      // by chunk: the values from another stage
  std::vector<std::vector<int>> hands_over_;    // by chunk: the nodes
  std::vector<bool> posted_;                    // by operation: its receives
  std::vector<std::vector<int>> waits_;         // by operation: its receives
  std::vector<int> sent_;                       // by micro-batch and node: the send
  // By chunk, oldest first: the messages of a micro-batch.
  std::vector<std::vector<std::vector<int>>> sent_gradients_;
  std::vector<bool> loaded_;  // by micro-batch
  int last_pass_ = -1;        // the instruction of the node that was written last
  bool loss_emitted_ = false;
};

}  // namespace

void write_step(ProgramBuilder& builder, const ModelGraph& graph, const StepShape& step,
                const StepSchedule& schedule) {
  StepWriter(builder, graph, step, schedule).write();
}

void write_forward(ProgramBuilder& builder, const ModelGraph& graph, const StepShape& step,
                   int output) {
  StepShape once = step;
  once.micro_batches = 1;
  once.pipeline.order.clear();
  NodeSchedule schedule;
  for (int n = 0; n < static_cast<int>(graph.nodes.size()); ++n)
    schedule.push_back({n, Pass::Forward});
  StepWriter(builder, graph, once, same_for_all(std::move(schedule), 1)).write_forward(output);
}

}  // namespace garonne::plan
