// Generators over models of all shapes: what they make is legal, computes the right thing, and is
// predicted right. The checks here know neither generator nor replay from the inside.
#include "plan/generator.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <tuple>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "plan/block_table.hpp"
#include "plan/graphs.hpp"
#include "plan/replay.hpp"

namespace garonne::plan::test {
namespace {

// Peak by adding up all live buffers anew at every instruction.
std::int64_t slow_peak(const Program& program) {
  std::set<int> live;
  for (int id = 0; id < static_cast<int>(program.buffers.size()); ++id) {
    if (program.buffers[at(id)].live_at_start) live.insert(id);
  }
  const auto total = [&] {
    std::int64_t bytes = 0;
    for (const int id : live) bytes += program.buffers[at(id)].bytes;
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
    EXPECT_EQ(live.count(id) == 1, program.buffers[at(id)].live_at_end);
  }
  return peak;
}

// Follows what every buffer means. Values: which value of which micro-batch. Gradients: which nodes
// have contributed. A node must be handed what its mathematics needs.
class MeaningCheck {
 public:
  MeaningCheck(const ModelGraph& graph, const Program& program) : graph_(graph), program_(program) {
    for (int n = 0; n < static_cast<int>(graph.nodes.size()); ++n) {
      for (std::size_t i = 0; i < graph.nodes[at(n)].inputs.size(); ++i) {
        consumers_[graph.nodes[at(n)].inputs[i]].insert({n, i});
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
    std::size_t next = 0;
    for (int v = 0; v < static_cast<int>(graph_.values.size()); ++v) {
      if (graph_.values[at(v)].loaded) {
        value_[instruction.arguments.inputs.at(next++)] = {v, instruction.micro_batch};
      }
    }
    gradients_.clear();
  }

  void check_parameters(const NodeSpec& node, const Instruction& instruction) const {
    ASSERT_EQ(instruction.arguments.parameters.size(), node.parameters.size());
    for (std::size_t k = 0; k < node.parameters.size(); ++k) {
      EXPECT_EQ(instruction.arguments.parameters[k],
                program_.parameters[at(node.parameters[k])].parameter);
    }
  }

  void forward(const Instruction& instruction) {
    const NodeSpec& node = graph_.nodes[at(instruction.node_index)];
    const Arguments& arguments = instruction.arguments;
    ASSERT_EQ(arguments.inputs.size(), node.inputs.size());
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      EXPECT_TRUE(holds(arguments.inputs[i], node.inputs[i], instruction.micro_batch))
          << "input " << i;
    }
    check_parameters(node, instruction);
    EXPECT_EQ(program_.buffers[at(arguments.output)].bytes, graph_.values[at(node.output)].bytes);
    value_[arguments.output] = {node.output, instruction.micro_batch};
    const bool keep = instruction.operation == Operation::ForwardKeep;
    ASSERT_EQ(arguments.record.size(), keep ? node.private_slot_bytes.size() : 0U);
    for (std::size_t slot = 0; slot < arguments.record.size(); ++slot) {
      record_[arguments.record[slot]] = {instruction.node_index, instruction.micro_batch};
    }
    if (keep) kept_.insert({instruction.node_index, instruction.micro_batch});
  }

  void backward(const Instruction& instruction) {
    const int n = instruction.node_index;
    const NodeSpec& node = graph_.nodes[at(n)];
    EXPECT_TRUE(graph_.has_backward(node));
    const Arguments& arguments = instruction.arguments;
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
    for (const int pinned : weights ? node.pinned_values : std::vector<int>()) {
      int buffer = pinned == node.output ? arguments.pinned_output : -1;
      for (std::size_t i = 0; i < node.inputs.size(); ++i) {
        if (node.inputs[i] == pinned) buffer = arguments.inputs[i];
      }
      EXPECT_TRUE(holds(buffer, pinned, instruction.micro_batch)) << "pinned value " << pinned;
    }
    ASSERT_EQ(arguments.record.size(), weights ? node.private_slot_bytes.size() : 0U);
    for (const int slot : arguments.record) {
      EXPECT_EQ(record_[slot], std::make_pair(n, instruction.micro_batch))
          << "another node's record";
    }
    EXPECT_TRUE(!node.needs_graph || kept_.count({n, instruction.micro_batch}) == 1);
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      if (inputs) {
        input_gradient(node, n, i, arguments);
      } else {
        EXPECT_EQ(arguments.input_gradients.at(i), -1);
      }
    }
    if (inputs) gradients_.erase(node.output);
    if (!weights) {
      EXPECT_TRUE(arguments.parameter_gradients.empty());
      return;
    }
    ASSERT_EQ(arguments.parameter_gradients.size(), node.parameters.size());
    for (std::size_t k = 0; k < node.parameters.size(); ++k) {
      const GradientTarget& target = arguments.parameter_gradients[k];
      sums_[node.parameters[k]].push_back({instruction.micro_batch, n, target.accumulate});
      places_[node.parameters[k]].insert({target.buffer, target.offset_elements});
    }
  }

  bool shared(int buffer, int except) const {
    return std::any_of(gradients_.begin(), gradients_.end(), [&](const auto& item) {
      return item.first != except && item.second.buffer == buffer;
    });
  }

  void input_gradient(const NodeSpec& node, int n, std::size_t i, const Arguments& arguments) {
    const int v = node.inputs[i];
    const int buffer = arguments.input_gradients.at(i);
    if (!graph_.values[at(v)].differentiable) {
      EXPECT_EQ(buffer, -1);
      return;
    }
    Gradient& gradient = gradients_[v];
    EXPECT_EQ(arguments.accumulated.at(i), gradient.buffer) << "loses or invents a contribution";
    if (buffer == gradient.buffer) {
      EXPECT_TRUE(node.adds_in_place.at(i));
      EXPECT_FALSE(shared(buffer, v)) << "adds in place to a gradient that has another name";
    } else if (buffer == arguments.output_gradient) {
      EXPECT_LT(gradient.buffer, 0) << "an alias cannot hold a sum";
      if (!node.gradient_aliases[i]) {
        EXPECT_TRUE(node.overwrites_gradient.at(i));
        EXPECT_FALSE(shared(buffer, node.output)) << "writes over another's gradient";
      }
    } else {
      EXPECT_FALSE(shared(buffer, -1)) << "a new gradient in a used buffer";
      EXPECT_EQ(program_.buffers[at(buffer)].kind, BufferKind::ValueGradient);
    }
    EXPECT_EQ(program_.buffers[at(buffer)].bytes, graph_.values[at(v)].bytes);
    gradient.buffer = buffer;
    gradient.contributions.insert({n, i});
  }

  // Micro-batches ascend, within one the node list descends; the first writes, the others add.
  void check_sums() {
    for (std::size_t p = 0; p < graph_.parameters.size(); ++p) {
      std::vector<std::tuple<int, int, bool>> wanted;
      for (int m = 0; m < program_.micro_batches; ++m) {
        for (int n = static_cast<int>(graph_.nodes.size()) - 1; n >= 0; --n) {
          if (!graph_.has_backward(graph_.nodes[at(n)])) continue;
          const auto& used = graph_.nodes[at(n)].parameters;
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
  std::set<std::pair<int, int>> kept_;
  std::set<std::tuple<int, int, Operation>> backwards_;
  std::map<int, Gradient> gradients_;  // by value, of the micro-batch under way
  std::map<int, std::vector<std::tuple<int, int, bool>>> sums_;
  std::map<int, std::set<std::pair<int, std::int64_t>>> places_;
};

std::int64_t static_bytes_by_formula(const ModelGraph& graph, const StepShape& step) {
  std::int64_t bytes = 0;
  for (const auto& parameter : graph.parameters) {
    bytes += round_up(parameter.elements * step.element_bytes.parameter, step.granularity);
    bytes += round_up(parameter.elements * step.element_bytes.master, step.granularity);
    bytes += static_cast<std::int64_t>(step.optimizer_states.size()) *
             round_up(parameter.elements * step.element_bytes.state, step.granularity);
  }
  return bytes;
}

// Buckets hold every parameter once, without overlap.
void check_buckets(const ModelGraph& graph, const StepShape& step, const Program& program) {
  std::set<int> seen;
  for (const auto& bucket : program.buckets) {
    std::int64_t offset = 0;
    ASSERT_EQ(bucket.parameters.size(), bucket.offsets.size());
    for (std::size_t k = 0; k < bucket.parameters.size(); ++k) {
      EXPECT_TRUE(seen.insert(bucket.parameters[k]).second);
      EXPECT_EQ(bucket.offsets[k], offset);
      offset += graph.parameters[at(bucket.parameters[k])].elements;
    }
    EXPECT_EQ(bucket.elements, offset);
    EXPECT_EQ(program.buffers[at(bucket.buffer)].bytes,
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
  for (const auto& instruction : program.instructions) {
    if (instruction.operation == Operation::Wait) --in_flight;
    if (instruction.operation != Operation::AllReduce) continue;
    reduced.insert(instruction.arguments.inputs.at(0));
    ASSERT_TRUE(instruction.channel.has_value());
    EXPECT_EQ(instruction.channel->members, step.data_group);
    EXPECT_LE(++in_flight, step.reductions_in_flight);
  }
  EXPECT_EQ(in_flight, 0);
  const bool wanted = step.data_group.size() > 1;
  EXPECT_EQ(reduced.size(), wanted ? program.buckets.size() + 1 : 0U);
  for (const auto& bucket : program.buckets)
    EXPECT_EQ(reduced.count(bucket.buffer), wanted ? 1U : 0U);
  EXPECT_EQ(reduced.count(program.loss_sum), wanted ? 1U : 0U);
}

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
  MeaningCheck(graph, program).run();
  check_buckets(graph, step, program);
  check_reductions(step, program);
  std::vector<Program> ranks(step.data_group.size(), program);
  EXPECT_NO_THROW(replay_together(ranks));
}

TEST(Generators, MakeRightProgramsOfAnyModel) {
  for (unsigned seed = 1; seed <= 60; ++seed) {
    const ModelGraph graph = random_graph(seed);
    ASSERT_NO_THROW(check_model_graph(graph));
    for (const auto& [name, schedule] : policy_schedules(graph)) {
      for (const int micro_batches : {1, 2, 4}) {
        for (const int ranks : {1, 2, 3}) {
          for (const std::int64_t bucket : {0, 64, 1000, 1 << 20}) {
            if (HasFailure()) return;
            SCOPED_TRACE("seed " + std::to_string(seed) + " " + name + " micro-batches " +
                         std::to_string(micro_batches) + " ranks " + std::to_string(ranks) +
                         " bucket " + std::to_string(bucket));
            check_program(graph, step_shape(micro_batches, ranks, bucket), schedule);
          }
        }
      }
    }
  }
}

TEST(Generators, NodesWithoutGradientsHaveNoBackward) {
  for (unsigned seed = 1; seed <= 60; ++seed) {
    const ModelGraph whole = random_graph(seed);
    const int nodes = static_cast<int>(whole.nodes.size());
    for (const int first : {1, nodes / 2, nodes - 1}) {
      const ModelGraph graph = without_gradients(whole, first);
      ASSERT_NO_THROW(check_model_graph(graph));
      for (const auto& [name, schedule] : policy_schedules(graph)) {
        if (HasFailure()) return;
        SCOPED_TRACE("seed " + std::to_string(seed) + " " + name + " without gradients " +
                     std::to_string(first));
        check_program(graph, step_shape(2, 2, 1000), schedule);
      }
    }
  }
}

TEST(BlockCosts, StagesDoNotBeginBehindValuesWithoutGradients) {
  // Nodes 0 to 4 of blocks 0, 0, 1, 1, 2, … have none, so the third block reads such a value.
  const auto blocks = block_costs(without_gradients(chain(4, 2), 5));
  std::vector<bool> may_begin;
  for (const auto& block : blocks) may_begin.push_back(block.may_begin_stage);
  EXPECT_EQ(may_begin, (std::vector<bool>{true, false, false, true, true}));
}

TEST(Generators, WhatIsKeptForNoBackwardIsRefused) {
  ModelGraph graph = without_gradients(chain(2, 2), 1);
  ASSERT_NO_THROW(check_model_graph(graph));
  graph.nodes[0].private_slot_bytes = {64};
  EXPECT_THROW(check_model_graph(graph), InternalError);
}

// Complex numbers are whole wherever a bucket is cut.
TEST(Generators, ComplexParametersBeginAtEvenPlaces) {
  for (unsigned seed = 1; seed <= 40; ++seed) {
    ModelGraph graph = random_graph(seed);
    for (auto& parameter : graph.parameters) {
      parameter.complex = seed % 2 == 0 || parameter.elements % 3 == 0;
      if (parameter.complex) parameter.elements += parameter.elements % 2;
    }
    for (const int zero : {0, 1, 3}) {
      StepShape step = step_shape(1, 3, 2000);
      step.zero = zero;
      const auto keep_all = recompute_on_demand(graph, keep_everything(graph));
      const Program program = make_training_program(graph, step, same_for_all(keep_all, 1));
      for (const auto& bucket : program.buckets) {
        for (std::size_t k = 0; k < bucket.parameters.size(); ++k) {
          const bool complex = graph.parameters[at(bucket.parameters[k])].complex;
          EXPECT_TRUE(!complex || bucket.offsets[k] % 2 == 0);
        }
        for (int member = 0; zero > 0 && member < 3; ++member) {
          for (const auto& piece : shard_pieces(bucket, member)) {
            if (!graph.parameters[at(piece.parameter)].complex) continue;
            EXPECT_EQ(piece.first % 2, 0);
            EXPECT_EQ(piece.elements % 2, 0);
          }
        }
      }
    }
  }
}

TEST(Generators, AnyChoiceOfBlocksIsRight) {
  for (unsigned seed = 100; seed < 130; ++seed) {
    const ModelGraph graph = random_graph(seed);
    for (unsigned bits = 0; bits < 1U << graph.blocks(); ++bits) {
      RecomputeChoice choice;
      for (int block = 0; block < graph.blocks(); ++block)
        choice.push_back((bits >> block & 1) != 0);
      if (HasFailure()) return;
      SCOPED_TRACE("seed " + std::to_string(seed) + " choice " + std::to_string(bits));
      check_program(graph, step_shape(2, 2, 500), recompute_blocks(graph, choice));
    }
  }
}

// A node that reads one value twice, as x + x does: refused as a model, or done right.
TEST(Generators, OneValueReadTwiceByANode) {
  for (const bool aliases : {false, true}) {
    for (const bool in_place : {false, true}) {
      ModelGraph graph = chain(2, 2);
      NodeSpec& node = graph.nodes[1];
      node.inputs = {node.inputs[0], node.inputs[0]};
      node.gradient_aliases = {aliases, aliases};
      node.adds_in_place = {in_place, in_place};
      try {
        check_model_graph(graph);
      } catch (const InternalError&) {
        continue;
      }
      check_program(graph, step_shape(2, 1, 0), schedule_of(graph, "keep-all"));
    }
  }
}

TEST(Generators, MastersCountAsStatic) {
  StepShape step = step_shape(2, 1, 0);
  step.element_bytes = {.parameter = 2, .master = 4, .gradient = 4, .state = 4};
  check_program(random_graph(7), step, schedule_of(random_graph(7), "keep-all"));
  step.granularity = 512;
  ModelGraph coarse = chain(3, 2);
  for (auto& value : coarse.values) value.bytes = round_up(value.bytes, step.granularity);
  check_program(coarse, step, schedule_of(coarse, "full"));
}

TEST(Generators, FullNeedsLessThanKeepAllOnDeepChains) {
  for (const int blocks : {2, 4, 12, 48}) {
    const ModelGraph graph = chain(blocks, 4);
    for (const int micro_batches : {1, 2, 4}) {
      const StepShape step = step_shape(micro_batches, 1, 0);
      const auto peak = [&](const char* name) {
        return replay(make_training_program(
            graph, step, same_for_all(schedule_of(graph, name), step.micro_batches)));
      };
      const Prediction all = peak("keep-all");
      const Prediction full = peak("full");
      EXPECT_LT(full.peak_bytes, all.peak_bytes) << blocks;
      EXPECT_GT(full.seconds, all.seconds) << "nothing was recomputed";
    }
  }
  // Deep enough, the records of one block and the inputs of all are what is left: 4096 a block,
  // against four times 4096 + 1088 and the gradients.
  const auto without_static = [](const char* name) {
    const ModelGraph graph = chain(48, 4);
    const Prediction prediction = replay(make_training_program(
        graph, step_shape(1, 1, 0), same_for_all(schedule_of(graph, name), 1)));
    return prediction.peak_bytes - prediction.static_bytes;
  };
  EXPECT_LT(without_static("full"), without_static("keep-all") / 3);
}

TEST(Generators, ForwardOnlyKeepsNothing) {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    const ModelGraph graph = random_graph(seed);
    const StepShape step = step_shape(4, 2, 0);
    const Program program = make_forward_program(graph, step, graph.loss);
    const Prediction prediction = replay(program);
    EXPECT_EQ(prediction.peak_bytes, slow_peak(program));
    EXPECT_EQ(prediction.static_bytes, static_bytes_by_formula(graph, step))
        << "states stay where they are during an evaluation";
    for (const auto& instruction : program.instructions) {
      EXPECT_FALSE(instruction.channel.has_value());
      EXPECT_TRUE(instruction.operation == Operation::Load ||
                  instruction.operation == Operation::Forward ||
                  instruction.operation == Operation::Report);
    }
    const ModelGraph deep = chain(48, 4);
    EXPECT_LT(replay(make_forward_program(deep, step, deep.loss)).peak_bytes -
                  static_bytes_by_formula(deep, step),
              5 * 4096)
        << "two values at a time";
  }
}

TEST(Generators, AnyKeptSetIsRight) {
  for (unsigned seed = 200; seed < 300; ++seed) {
    const ModelGraph graph = random_graph(seed);
    std::mt19937 random(seed);
    KeptSet kept = keep_everything(graph);
    for (std::size_t v = 0; v < kept.values.size(); ++v) kept.values[v] = random() % 2 == 0;
    for (std::size_t n = 0; n < kept.records.size(); ++n) kept.records[n] = random() % 2 == 0;
    if (HasFailure()) return;
    SCOPED_TRACE("seed " + std::to_string(seed));
    check_program(graph, step_shape(2, 2, 500), recompute_on_demand(graph, kept));
  }
}

TEST(Generators, MicroBatchesMayDiffer) {
  const ModelGraph graph = random_graph(11);
  const StepShape step = step_shape(3, 1, 0);
  StepSchedule schedule;
  schedule.schedules = {schedule_of(graph, "full"), schedule_of(graph, "keep-all")};
  schedule.of_micro_batch = {0, 1, 0};
  const Program program = make_training_program(graph, step, schedule);
  EXPECT_EQ(replay(program).peak_bytes, slow_peak(program));
  MeaningCheck(graph, program).run();
}

TEST(ModelGraphCheck, FindsContradictions) {
  const auto broken = [](const std::function<void(ModelGraph&)>& breaks) {
    ModelGraph graph = chain(2, 2);
    breaks(graph);
    EXPECT_THROW(check_model_graph(graph), InternalError);
  };
  broken([](ModelGraph& graph) { graph.nodes[1].block = 2; });
  broken([](ModelGraph& graph) { std::swap(graph.nodes[0], graph.nodes[1]); });
  broken([](ModelGraph& graph) { graph.nodes[2].output = graph.nodes[1].output; });
  broken([](ModelGraph& graph) { graph.nodes[2].gradient_aliases.clear(); });
  broken([](ModelGraph& graph) { graph.nodes[2].parameters = {99}; });
  ModelGraph unused = chain(2, 2);
  unused.parameters.push_back({"unused", {1}, 1, false});
  EXPECT_THROW(make_training_program(unused, step_shape(1, 1, 0),
                                     same_for_all(schedule_of(unused, "keep-all"), 1)),
               InternalError);
}

}  // namespace
}  // namespace garonne::plan::test
