#include "plan/program/program_meaning.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "base/bytes.hpp"
#include "plan/program/content_check.hpp"
#include "plan/program/model_check.hpp"
#include "plan/program/order_check.hpp"
#include "plan/program/replay.hpp"
#include "plan/step/graphs.hpp"

namespace garonne::plan::test {

std::int64_t slow_peak(const Program& program) {
  std::set<int> live;
  for (int id = 0; id < static_cast<int>(program.buffers.size()); ++id) {
    if (program.buffers[as_index(id)].live_at_start) live.insert(id);
  }
  const auto total = [&] {
    std::int64_t bytes = 0;
    for (const int id : live) bytes += program.buffers[as_index(id)].bytes;
    return bytes;
  };
  std::int64_t peak = total();
  for (const auto& instruction : program.instructions) {
    for (const int id : instruction.reads) EXPECT_TRUE(live.count(id)) << describe(instruction);
    for (const int id : instruction.writes) live.insert(id);
    peak = std::max(peak, total() + instruction.transient_bytes);
    for (const int id : instruction.frees) EXPECT_EQ(live.erase(id), 1U) << describe(instruction);
  }
  for (int id = 0; id < static_cast<int>(program.buffers.size()); ++id) {
    EXPECT_EQ(live.count(id) == 1, program.buffers[as_index(id)].live_at_end);
  }
  return peak;
}

namespace {

// Follows what every buffer means. Values: which value of which micro-batch. Gradients: which nodes
// have contributed. A node must be handed what its mathematics needs.
class MeaningCheck {
 public:
  MeaningCheck(const ModelGraph& graph, const Program& program) : graph_(graph), program_(program) {
    for (int n = 0; n < static_cast<int>(graph.nodes.size()); ++n) {
      for (std::size_t i = 0; i < graph.nodes[as_index(n)].inputs.size(); ++i) {
        consumers_[graph.nodes[as_index(n)].inputs[i]].insert({n, i});
      }
    }
  }

  void run() {
    for (const auto& instruction : program_.instructions) {
      SCOPED_TRACE(describe(instruction));
      switch (instruction.operation) {
        case Operation::Load:
          load(instruction);
          break;
        case Operation::Forward:
        case Operation::ForwardKeep:
          forward(instruction);
          break;
        case Operation::Backward:
        case Operation::BackwardWeight:
        case Operation::BackwardInput:
          backward(instruction);
          break;
        case Operation::EmitLoss:
          EXPECT_TRUE(holds(instruction.arguments.inputs[0], graph_.loss, instruction.micro_batch));
          break;
        default:
          break;
      }
      for (const int id : instruction.frees) value_.erase(id), record_.erase(id);
    }
    // Every node ran each pass of its backward once a micro-batch.
    std::size_t passes = 0;
    for (int n = 0; n < static_cast<int>(graph_.nodes.size()); ++n) {
      passes += backward_passes(graph_, n).size();
    }
    EXPECT_EQ(backwards_.size(), passes * static_cast<std::size_t>(program_.micro_batches));
    check_sums();
  }

 private:
  using Contributions = std::set<std::pair<int, std::size_t>>;
  struct Gradient {
    int buffer = -1;
    Contributions contributions;
  };

  bool holds(int buffer, int value, int micro_batch) const {
    const auto found = value_.find(buffer);
    return found != value_.end() && found->second == std::make_pair(value, micro_batch);
  }

  void load(const Instruction& instruction) {
    std::set<int> loaded;
    for (const LoadedValue& one : instruction.arguments.loaded) {
      value_[one.buffer] = {one.value, instruction.micro_batch};
      loaded.insert(one.value);
    }
    for (int v = 0; v < static_cast<int>(graph_.values.size()); ++v)
      EXPECT_EQ(loaded.count(v) == 1, graph_.values[as_index(v)].loaded);
    gradients_.clear();
  }

  void check_parameters(const NodeSpec& node, const Instruction& instruction) const {
    ASSERT_EQ(instruction.arguments.parameters.size(), node.parameters.size());
    for (std::size_t k = 0; k < node.parameters.size(); ++k) {
      const ParameterSpec& parameter = graph_.parameters[as_index(node.parameters[k])];
      const Range& range = instruction.arguments.parameters[k];
      EXPECT_EQ(program_.buffers[as_index(range.buffer)].name, parameter.name);
      EXPECT_EQ(range.offset, 0);
      EXPECT_EQ(range.elements, parameter.elements);
    }
  }

  void forward(const Instruction& instruction) {
    const NodeSpec& node = graph_.nodes[as_index(instruction.node_index)];
    const Arguments& arguments = instruction.arguments;
    ASSERT_EQ(arguments.inputs.size(), node.inputs.size());
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      EXPECT_TRUE(holds(arguments.inputs[i], node.inputs[i], instruction.micro_batch))
          << "input " << i;
    }
    check_parameters(node, instruction);
    EXPECT_EQ(program_.buffers[as_index(arguments.output)].bytes,
              graph_.values[as_index(node.output)].bytes);
    value_[arguments.output] = {node.output, instruction.micro_batch};
    const bool keep = instruction.operation == Operation::ForwardKeep;
    const KeepOption& kept = node.keep_option(arguments.keep_option);
    EXPECT_TRUE(keep || arguments.keep_option == 0);
    ASSERT_EQ(arguments.record.size(), keep ? kept.private_slot_bytes.size() : 0U);
    for (std::size_t slot = 0; slot < arguments.record.size(); ++slot) {
      EXPECT_GE(program_.buffers[as_index(arguments.record[slot])].bytes,
                kept.private_slot_bytes[slot]);
      record_[arguments.record[slot]] = {instruction.node_index, instruction.micro_batch};
    }
    if (keep) kept_[{instruction.node_index, instruction.micro_batch}] = arguments.keep_option;
  }

  void backward(const Instruction& instruction) {
    const int n = instruction.node_index;
    const NodeSpec& node = graph_.nodes[as_index(n)];
    EXPECT_TRUE(graph_.has_backward(node));
    const Arguments& arguments = instruction.arguments;
    const KeepOption& kept = node.keep_option(arguments.keep_option);
    ASSERT_EQ(kept_.count({n, instruction.micro_batch}), 1U) << "nothing was kept";
    EXPECT_EQ(kept_.at({n, instruction.micro_batch}), arguments.keep_option);
    const bool weights = instruction.operation != Operation::BackwardInput;
    const bool inputs = instruction.operation != Operation::BackwardWeight;
    EXPECT_EQ(node.splits_backward, instruction.operation != Operation::Backward);
    EXPECT_TRUE(backwards_.insert({n, instruction.micro_batch, instruction.operation}).second)
        << "runs a backward twice";
    if (instruction.operation == Operation::BackwardInput) {
      EXPECT_EQ(backwards_.count({n, instruction.micro_batch, Operation::BackwardWeight}), 1U)
          << "weights come first";
    }
    if (node.output != graph_.loss) {
      const Gradient& mine = gradients_[node.output];
      EXPECT_EQ(arguments.output_gradient, mine.buffer);
      EXPECT_EQ(mine.contributions, consumers_[node.output])
          << "its output's gradient is not complete";
    }
    if (inputs) check_parameters(node, instruction);
    for (const int pinned : weights ? kept.pinned_values : std::vector<int>()) {
      int buffer = pinned == node.output ? arguments.pinned_output : -1;
      for (std::size_t i = 0; i < node.inputs.size(); ++i) {
        if (node.inputs[i] == pinned) buffer = arguments.inputs[i];
      }
      EXPECT_TRUE(holds(buffer, pinned, instruction.micro_batch)) << "pinned value " << pinned;
    }
    ASSERT_EQ(arguments.record.size(), weights ? kept.private_slot_bytes.size() : 0U);
    for (const int slot : arguments.record) {
      EXPECT_EQ(record_[slot], std::make_pair(n, instruction.micro_batch))
          << "another node's record";
    }
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      if (inputs) {
        input_gradient(node, n, i, arguments);
      } else {
        EXPECT_EQ(arguments.input_gradients.at(i), -1);
        EXPECT_EQ(arguments.placements.at(i), Placement::None);
      }
    }
    if (inputs) gradients_.erase(node.output);
    const std::int64_t plain =
        inputs ? kept.backward.transient_bytes : kept.backward_weight.transient_bytes;
    EXPECT_EQ(instruction.transient_bytes, writes_in_place(node, arguments)
                                               ? kept.in_place_transient_bytes.value_or(plain)
                                               : plain);
    if (!weights) {
      EXPECT_TRUE(arguments.parameter_gradients.empty());
      return;
    }
    ASSERT_EQ(arguments.parameter_gradients.size(), node.parameters.size());
    for (std::size_t k = 0; k < node.parameters.size(); ++k) {
      const GradientTarget& target = arguments.parameter_gradients[k];
      sums_[node.parameters[k]].push_back({instruction.micro_batch, n, target.accumulate});
      EXPECT_EQ(target.parameter, node.parameters[k]);
      EXPECT_EQ(target.range.elements, graph_.parameters[as_index(node.parameters[k])].elements);
      places_[node.parameters[k]].insert({target.range.buffer, target.range.offset});
    }
  }

  // Aliases need no storage either, but nothing is written to them.
  static bool writes_in_place(const NodeSpec& node, const Arguments& arguments) {
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const int buffer = arguments.input_gradients[i];
      if (buffer < 0) continue;
      if (buffer == arguments.accumulated[i]) return true;
      if (buffer == arguments.output_gradient && !node.gradient_aliases[i]) return true;
    }
    return false;
  }

  bool shared(int buffer, int except) const {
    return std::any_of(gradients_.begin(), gradients_.end(), [&](const auto& item) {
      return item.first != except && item.second.buffer == buffer;
    });
  }

  void input_gradient(const NodeSpec& node, int n, std::size_t i, const Arguments& arguments) {
    const int v = node.inputs[i];
    const int buffer = arguments.input_gradients.at(i);
    const Placement placement = arguments.placements.at(i);
    if (!graph_.values[as_index(v)].differentiable) {
      EXPECT_EQ(buffer, -1);
      EXPECT_EQ(placement, Placement::None);
      return;
    }
    Gradient& gradient = gradients_[v];
    EXPECT_EQ(arguments.accumulated.at(i), gradient.buffer) << "loses or invents a contribution";
    if (buffer == gradient.buffer) {
      EXPECT_EQ(placement, Placement::AddInPlace);
      EXPECT_TRUE(node.adds_in_place.at(i));
      EXPECT_FALSE(shared(buffer, v)) << "adds in place to a gradient that has another name";
    } else if (buffer == arguments.output_gradient) {
      EXPECT_EQ(placement, node.gradient_aliases[i] ? Placement::Alias : Placement::Overwrite);
      EXPECT_LT(gradient.buffer, 0) << "an alias cannot hold a sum";
      if (!node.gradient_aliases[i]) {
        EXPECT_TRUE(node.overwrites_gradient.at(i));
        EXPECT_FALSE(shared(buffer, node.output)) << "writes over another's gradient";
      }
    } else {
      EXPECT_EQ(placement, gradient.buffer < 0        ? Placement::Fresh
                           : node.gradient_aliases[i] ? Placement::SumWithAlias
                                                      : Placement::AddExisting);
      EXPECT_FALSE(shared(buffer, -1)) << "a new gradient in a used buffer";
      EXPECT_EQ(program_.buffers[as_index(buffer)].kind, BufferKind::ValueGradient);
    }
    EXPECT_EQ(program_.buffers[as_index(buffer)].bytes, graph_.values[as_index(v)].bytes);
    gradient.buffer = buffer;
    gradient.contributions.insert({n, i});
  }

  // Micro-batches ascend, within one the node list descends; the first writes, the others add.
  void check_sums() {
    for (std::size_t p = 0; p < graph_.parameters.size(); ++p) {
      std::vector<std::tuple<int, int, bool>> wanted;
      for (int m = 0; m < program_.micro_batches; ++m) {
        for (int n = static_cast<int>(graph_.nodes.size()) - 1; n >= 0; --n) {
          if (!graph_.has_backward(graph_.nodes[as_index(n)])) continue;
          const auto& used = graph_.nodes[as_index(n)].parameters;
          if (std::count(used.begin(), used.end(), static_cast<int>(p)) == 0) continue;
          wanted.emplace_back(m, n, !wanted.empty());
        }
      }
      EXPECT_EQ(sums_[static_cast<int>(p)], wanted) << graph_.parameters[p].name;
      EXPECT_EQ(places_[static_cast<int>(p)].size(), 1U) << graph_.parameters[p].name;
    }
  }

  const ModelGraph& graph_;
  const Program& program_;
  std::map<int, Contributions> consumers_;
  std::map<int, std::pair<int, int>> value_;   // buffer -> value, micro-batch
  std::map<int, std::pair<int, int>> record_;  // buffer -> node, micro-batch
  std::map<std::pair<int, int>, int> kept_;    // node, micro-batch -> in which way
  std::set<std::tuple<int, int, Operation>> backwards_;
  std::map<int, Gradient> gradients_;  // by value, of the micro-batch under way
  std::map<int, std::vector<std::tuple<int, int, bool>>> sums_;
  std::map<int, std::set<std::pair<int, std::int64_t>>> places_;
};

}  // namespace

void check_meaning(const ModelGraph& graph, const Program& program) {
  MeaningCheck(graph, program).run();
}

std::int64_t static_bytes_by_formula(const ModelGraph& graph, const StepShape& step) {
  std::int64_t bytes = 0;
  for (const auto& parameter : graph.parameters) {
    bytes += round_up(parameter.elements * step.element_bytes.parameter, step.granularity);
    bytes += round_up(parameter.elements * step.element_bytes.master, step.granularity);
    for (const StateSpec& state : step.optimizer_states) {
      std::int64_t numbers = 0;
      for (std::int64_t e = 0; e < parameter.elements; e += state.blocks.elements)
        numbers += state.blocks.numbers;
      const std::int64_t of_number = state.type == StateType::UInt8     ? 1
                                     : state.type == StateType::Float32 ? 4
                                                                        : step.element_bytes.state;
      bytes += round_up(numbers * of_number, step.granularity);
    }
  }
  return bytes;
}

namespace {

// Buckets hold every parameter once, without overlap.
void check_buckets(const ModelGraph& graph, const StepShape& step, const Program& program) {
  std::set<int> seen;
  for (const auto& bucket : program.buckets) {
    std::int64_t offset = 0;
    ASSERT_EQ(bucket.parameters.size(), bucket.offsets.size());
    for (std::size_t k = 0; k < bucket.parameters.size(); ++k) {
      EXPECT_TRUE(seen.insert(bucket.parameters[k]).second);
      EXPECT_EQ(bucket.offsets[k], offset);
      offset += graph.parameters[as_index(bucket.parameters[k])].elements;
    }
    EXPECT_EQ(bucket.elements, offset);
    EXPECT_EQ(program.buffers[as_index(bucket.buffer)].bytes,
              round_up(offset * step.element_bytes.gradient, step.granularity));
    if (bucket.parameters.size() > 1) {
      EXPECT_LE(offset * step.element_bytes.gradient, step.bucket_bytes);
    }
  }
  EXPECT_EQ(seen.size(), graph.parameters.size());
}

// Every bucket and the loss are reduced once, with the bytes of their elements.
void check_reductions(const StepShape& step, const Program& program) {
  std::multiset<int> reduced;
  int in_flight = 0;
  std::int64_t staging = 0;
  const auto staging_of = [&](const Instruction& reduction) {
    return program.buffers[as_index(reduction.arguments.staging)].bytes;
  };
  for (const auto& instruction : program.instructions) {
    if (instruction.operation == Operation::Wait) {
      --in_flight;
      staging -= staging_of(program.instructions[as_index(instruction.completes)]);
    }
    if (instruction.operation != Operation::AllReduce) continue;
    reduced.insert(instruction.arguments.inputs.at(0));
    ASSERT_TRUE(instruction.channel.has_value());
    EXPECT_EQ(instruction.channel->members, step.data_group);
    staging += staging_of(instruction);
    const auto& limits = step.reduction_bytes;
    EXPECT_TRUE(++in_flight == 1 || (!limits.empty() && staging <= limits.back()));
  }
  EXPECT_EQ(in_flight, 0);
  const bool wanted = step.data_group.size() > 1;
  EXPECT_EQ(reduced.size(), wanted ? program.buckets.size() + 1 : 0U);
  for (const auto& bucket : program.buckets)
    EXPECT_EQ(reduced.count(bucket.buffer), wanted ? 1U : 0U);
  EXPECT_EQ(std::count_if(
                reduced.begin(), reduced.end(),
                [&](int id) { return program.buffers[as_index(id)].kind == BufferKind::Scalar; }),
            wanted ? 1 : 0);
}

}  // namespace

void check_program(const ModelGraph& graph, const StepShape& step, const NodeSchedule& schedule) {
  const Program program =
      make_training_program(graph, step, same_for_all(schedule, step.micro_batches));
  Prediction prediction;
  ASSERT_NO_THROW(prediction = replay(program));
  EXPECT_EQ(prediction.peak_bytes, slow_peak(program));
  EXPECT_EQ(prediction.static_bytes, static_bytes_by_formula(graph, step));
  EXPECT_EQ(prediction.live_bytes.size(), program.instructions.size());
  EXPECT_EQ(prediction.live_bytes.back(), prediction.static_bytes);
  std::int64_t by_kind = prediction.peak_transient_bytes;
  for (const std::int64_t bytes : prediction.peak_by_kind) by_kind += bytes;
  EXPECT_EQ(by_kind, prediction.peak_bytes);
  EXPECT_EQ(*std::max_element(prediction.during_bytes.begin(), prediction.during_bytes.end()),
            prediction.peak_bytes);
  EXPECT_NO_THROW(check_against_model(program, graph));
  EXPECT_NO_THROW(check_order(program));
  EXPECT_NO_THROW(check_contents(program, graph));
  check_meaning(graph, program);
  check_buckets(graph, step, program);
  check_reductions(step, program);
  std::vector<Program> ranks(step.data_group.size(), program);
  EXPECT_NO_THROW(replay_together(ranks));
}

}  // namespace garonne::plan::test
