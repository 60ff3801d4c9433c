// Programs for a GPU: what kernels take to issue and at least, and what libraries keep.
#include "plan/step/launches.hpp"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/bytes.hpp"
#include "base/index.hpp"
#include "plan/model/cost_table.hpp"
#include "plan/model/step_costs.hpp"
#include "plan/program/proofs.hpp"
#include "plan/program/replay.hpp"
#include "plan/stage/smallest_budget.hpp"
#include "plan/step/tensor_graphs.hpp"

namespace garonne::plan::test {
namespace {

constexpr std::int64_t workspace = 1 << 20;

StepShape on_a_gpu(StepShape step) {
  step.granularity = cuda_allocation_granularity;
  step.kernels = {3e-6, 5e-6};
  step.workspaces = {{"cublas", workspace}, {"cublaslt", 300}};
  return step;
}

// Bytes as a GPU has them.
ModelGraph for_a_gpu(ModelGraph graph, const NominalRates& rates) {
  const auto round = [](std::int64_t& bytes) {
    bytes = round_up(bytes, cuda_allocation_granularity);
  };
  for (auto& value : graph.values) round(value.bytes);
  for (auto& node : graph.nodes) {
    for (auto& slot : node.private_slot_bytes) round(slot);
    for (OperationCost* const cost :
         {&node.forward, &node.forward_keep, &node.backward, &node.backward_weight})
      round(cost->transient_bytes);
  }
  estimate_seconds(rates, graph);
  return graph;
}

Program program_of(const ModelGraph& graph, const StepShape& step) {
  return make_training_program(graph, step,
                               same_for_all(schedule_of(graph, "keep-all"), step.micro_batches));
}

TEST(Launches, NothingChangesWhereTheHostComputes) {
  const ModelGraph graph = chain(3, 2);
  const StepShape step = step_shape(2, 2, 4096);
  const Program program = program_of(graph, step);
  Program launched = program;
  add_launches(launched, graph, step);
  EXPECT_EQ(program_hash(launched), program_hash(program));
  for (const Instruction& instruction : program.instructions)
    EXPECT_EQ(instruction.issue_seconds, 0);
  EXPECT_EQ(replay(program).launch_seconds, 0);
}

// What is hidden takes the processor's time, and what is waited for has it while the link works.
TEST(Launches, CommunicationTakesWhatComputesBesideIt) {
  const ModelGraph graph = chain(3, 2);
  StepShape step = step_shape(2, 2, 4096);
  step.links.data.link = {0, 1e18};
  const Program before = program_of(graph, step);
  step.kernels.communication = 1e-6;
  const Program program = program_of(graph, step);
  double seconds = 0;
  ASSERT_EQ(program.instructions.size(), before.instructions.size());
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& one = program.instructions[i];
    if (one.operation != Operation::Wait) {
      EXPECT_EQ(one.seconds, before.instructions[i].seconds);
      continue;
    }
    const Channel& channel = *program.instructions[as_index(one.completes)].channel;
    // A ring of two: half of them to the other, and half of what is summed.
    EXPECT_DOUBLE_EQ(one.seconds, 1e-6 * static_cast<double>(channel.bytes));
    seconds += one.seconds;
  }
  EXPECT_GT(seconds, 0);
  EXPECT_EQ(replay(program).peak_bytes, replay(before).peak_bytes);
  EXPECT_NEAR(replay(program).seconds - replay(before).seconds, seconds, 1e-3 * seconds);
  // Of a link that takes longer than all computing next to nothing is left.
  step.links.data.link = {0, 4096 / replay(before).seconds};
  const double slow = replay(program_of(graph, step)).seconds;
  step.kernels.communication = 0;
  EXPECT_LT(slow - replay(program_of(graph, step)).seconds, 0.1 * seconds);
}

TEST(Launches, EveryKernelIsIssued) {
  const NominalRates rates{1e15, 4e12, 3e-6, 5e-6};
  for (const int ranks : {1, 2}) {
    const ModelGraph graph = for_a_gpu(chain(3, 2), rates);
    const StepShape step = on_a_gpu(step_shape(2, ranks, 4096));
    const Program program = program_of(graph, step);
    double issued = 0;
    for (const Instruction& instruction : program.instructions) {
      if (instruction.operation == Operation::Wait) {
        EXPECT_EQ(instruction.issue_seconds, 0);
        continue;
      }
      EXPECT_GE(instruction.issue_seconds, 5e-6) << describe(instruction);
      issued += instruction.issue_seconds;
      if (instruction.lane == Lane::Compute && instruction.operation != Operation::Load &&
          instruction.operation != Operation::Report) {
        EXPECT_GE(instruction.seconds, 3e-6) << describe(instruction);
      }
      if (instruction.operation == Operation::Update) {
        EXPECT_NEAR(instruction.issue_seconds,
                    5e-6 * static_cast<double>(instruction.arguments.pieces.size()), 1e-12);
      }
    }
    prove(program, graph);
    const Prediction prediction = replay(program);
    EXPECT_DOUBLE_EQ(prediction.issue_seconds, issued);
    // Small kernels on a fast device: the host binds, and all of its time is in the step.
    EXPECT_GE(prediction.seconds, issued);
    EXPECT_GT(prediction.launch_seconds, 0.2 * prediction.seconds);
  }
}

// What an optimizer puts on a device, as the tests of its kernels count it there.
struct OptimizerLaunches {
  std::vector<StateSpec> states;
  std::vector<TensorSums> sums;
  int update = 1;
  std::vector<int> of_matrix = {};  // by round of its sums
  std::vector<int> of_vector = {};
};

const std::vector<OptimizerLaunches> launches_of_optimizers = {
    {{{.name = "first_moment"}, {.name = "second_moment"}}, {}},
    {{{.name = "first_moment"}, {.name = "second_moment"}}, {{.numbers = 2}}, 1, {4}, {0}},
    {{{.name = "row_moment", .blocks = StateBlocks::of_side(MatrixSide::Rows)},
      {.name = "column_moment", .blocks = StateBlocks::of_side(MatrixSide::Columns)}},
     {{.numbers = 3, .sides = true}, {.numbers = 1}},
     2,
     {5, 2},
     {5, 2}}};

TEST(Launches, SumsAndUpdatesHaveThoseOfTheirOptimizer) {
  ModelGraph graph = chain(3, 2);
  for (std::size_t p = 0; p < graph.parameters.size(); ++p)
    graph.parameters[p].shape =
        p % 3 == 0 ? std::vector<std::int64_t>{10} : std::vector<std::int64_t>{5, 2};
  int with_sums = 0;
  for (const OptimizerLaunches& optimizer : launches_of_optimizers) {
    for (const int ranks : {1, 2}) {
      StepShape step = on_a_gpu(step_shape(1, ranks, 4096));
      step.zero = ranks == 1 ? 0 : 1;
      step.kernels.least = 1e-3;
      step.optimizer_states = optimizer.states;
      step.tensor_sums = optimizer.sums;
      const Program program = program_of(graph, step);
      for (const Instruction& instruction : program.instructions) {
        int launches = 0;
        if (instruction.operation == Operation::SumTensors) {
          const std::size_t round = instruction.arguments.inputs.size() - 1;
          launches = 1;
          for (const int piece : instruction.arguments.pieces) {
            const int parameter = program.pieces[as_index(piece)].parameter;
            launches +=
                parameter % 3 == 0 ? optimizer.of_vector[round] : optimizer.of_matrix[round];
          }
          ++with_sums;
        } else if (instruction.operation == Operation::Update) {
          launches = optimizer.update * static_cast<int>(instruction.arguments.pieces.size());
        } else {
          continue;
        }
        EXPECT_NEAR(instruction.issue_seconds, 5e-6 * launches, 1e-12) << describe(instruction);
        EXPECT_NEAR(instruction.seconds, 1e-3 * launches, 1e-9) << describe(instruction);
      }
    }
  }
  EXPECT_GT(with_sums, 0);
}

TEST(Launches, AMeasuredUpdateSaysWhatAKernelTakesToIssue) {
  ModelGraph graph = chain(1, 1);
  StepShape step = step_shape(1, 1, 0);
  CostTable costs;
  costs.rows[step_cost_key("adamw", "bfloat16")].forward_seconds = 1e-3;
  apply_costs(costs, "adamw", "bfloat16", graph, step);
  EXPECT_EQ(step.kernels.issue, 0);
  costs.rows[step_cost_key("adamw", "bfloat16")].forward_issue_seconds = 4e-6;
  apply_costs(costs, "adamw", "bfloat16", graph, step);
  EXPECT_EQ(step.kernels.issue, 4e-6);
  // Adafactor's are two.
  step.optimizer_states = launches_of_optimizers.back().states;
  costs.rows[step_cost_key("adafactor", "bfloat16")].forward_issue_seconds = 7e-6;
  apply_costs(costs, "adafactor", "bfloat16", graph, step);
  EXPECT_EQ(step.kernels.issue, 3.5e-6);
}

// As of a residual whose gradient is the incoming one.
TEST(Launches, APassOfNoKernelsIsNotIssued) {
  ModelGraph graph = chain(2, 1);
  graph.nodes[1].backward.kernels = 0;
  graph = for_a_gpu(graph, {1e15, 4e12, 3e-6, 5e-6});
  const Program program = program_of(graph, on_a_gpu(step_shape(1, 1, 0)));
  int passes = 0;
  for (const Instruction& instruction : program.instructions) {
    if (!is_backward(instruction.operation)) continue;
    ++passes;
    EXPECT_EQ(instruction.issue_seconds, instruction.node_index == 1 ? 0 : 5e-6);
  }
  EXPECT_EQ(passes, 3);
}

// A model of a tensor rank whose meetings have so many kernels beside their collectives.
ModelGraph meeting_graph(unsigned seed, int forward, int backward) {
  ModelGraph graph = with_collectives(chain(5, 2), seed);
  for (NodeSpec& node : graph.nodes) {
    if (!node.communicates()) continue;
    node.forward.kernels = node.forward_keep.kernels = forward;
    node.backward.kernels = backward;
  }
  return graph;
}

struct PassIssue {
  double parts = 0;  // of the node
  double meeting = 0;
  bool forward = true;
  bool in_place = false;
  Operation collective = Operation::AllGather;
};

// By what is exchanged.
std::map<int, PassIssue> divided_passes(const Program& program) {
  std::map<int, PassIssue> passes;
  std::map<int, int> number;  // storages are exchanged again by other passes
  int next = 0;
  for (const Instruction& instruction : program.instructions) {
    const int exchanged = instruction.arguments.exchanged;
    if (exchanged < 0) continue;
    const bool meets = is_collective(instruction.operation);
    const bool begins = !meets && !is_finish(instruction.operation);
    if (begins) number[exchanged] = next++;
    PassIssue& pass = passes[number.at(exchanged)];
    if (meets) {
      pass.collective = instruction.operation;
      pass.meeting += instruction.issue_seconds;
      continue;
    }
    pass.parts += instruction.issue_seconds;
    if (!begins) continue;
    pass.forward = is_forward(instruction.operation);
    pass.in_place = exchanged == instruction.arguments.output_gradient;
  }
  return passes;
}

TEST(Launches, PartsOfADividedPassHaveTheKernelsOfTheirNode) {
  std::set<Operation> met;
  int in_place = 0;
  for (unsigned seed = 1; seed <= 12; ++seed) {
    const ModelGraph graph = meeting_graph(seed, 3, 4);
    StepShape step = tensor_step_shape(2, 1, 0);
    step.kernels = {0, 5e-6};
    const Program program = program_of(graph, step);
    for (const auto& [number, pass] : divided_passes(program)) {
      in_place += pass.in_place ? 1 : 0;
      const int kernels = pass.in_place ? 0 : pass.forward ? 3 : 4;
      EXPECT_NEAR(pass.parts, kernels * 5e-6, 1e-12);
      const int launches = pass.collective == Operation::AllGather       ? 1
                           : pass.collective == Operation::ReduceScatter ? 2
                                                                         : 3;
      EXPECT_NEAR(pass.meeting, launches * 5e-6, 1e-12);
      met.insert(pass.collective);
    }
    // The passes of such nodes that meet nobody.
    for (const Instruction& instruction : program.instructions) {
      const bool pass = is_forward(instruction.operation) || is_backward(instruction.operation);
      if (!pass || instruction.arguments.exchanged >= 0) continue;
      const NodeSpec& node = graph.nodes[static_cast<std::size_t>(instruction.node_index)];
      if (!node.communicates()) continue;
      EXPECT_NEAR(instruction.issue_seconds, 5e-6 * (is_forward(instruction.operation) ? 3 : 4),
                  1e-12);
    }
    prove(program, graph);
  }
  EXPECT_EQ(met.size(), 3U);
  EXPECT_GT(in_place, 0);
}

TEST(Launches, IssueSecondsOfANodeGoToThePartsOfItsPass) {
  for (unsigned seed = 1; seed <= 6; ++seed) {
    ModelGraph graph = meeting_graph(seed, 2, 3);
    for (NodeSpec& node : graph.nodes) {
      if (!node.communicates()) continue;
      node.forward.issue_seconds = node.forward_keep.issue_seconds = 7e-6;
      node.backward.issue_seconds = 9e-6;
    }
    StepShape step = tensor_step_shape(2, 1, 0);
    step.kernels = {0, 5e-6};
    const Program program = program_of(graph, step);
    int passes = 0;
    for (const auto& [number, pass] : divided_passes(program)) {
      EXPECT_NEAR(pass.parts, pass.forward ? 7e-6 : 9e-6, 1e-12);
      ++passes;
    }
    EXPECT_GT(passes, 0);
  }
}

TEST(Launches, LongKernelsHideTheHost) {
  const NominalRates rates{1e6, 1e6, 3e-6, 5e-6};
  const ModelGraph graph = for_a_gpu(chain(3, 2), rates);
  const Prediction prediction = replay(program_of(graph, on_a_gpu(step_shape(2, 1, 0))));
  EXPECT_LT(prediction.launch_seconds, 0.01 * prediction.seconds);
}

TEST(Launches, WorkspacesAreHeldAllTheTime) {
  const NominalRates rates{1e15, 4e12, 3e-6, 5e-6};
  const ModelGraph graph = for_a_gpu(chain(3, 2), rates);
  for (const int zero : {0, 1, 2, 3}) {
    StepShape step = on_a_gpu(step_shape(2, 2, 4096));
    step.zero = zero;
    const Program program = program_of(graph, step);
    EXPECT_EQ(program.tier(Tier::Device).granularity, 512);
    for (const Buffer& buffer : program.buffers) EXPECT_EQ(buffer.bytes % 512, 0) << buffer.name;
    StepShape without = step;
    without.workspaces.clear();
    const Prediction less = replay(program_of(graph, without));
    const Prediction more = replay(program);
    EXPECT_EQ(more.peak_bytes - less.peak_bytes, workspace + 512);
    EXPECT_EQ(more.static_bytes - less.static_bytes, workspace + 512);
    EXPECT_EQ(more.peak_by_kind[static_cast<std::size_t>(BufferKind::Workspace)], workspace + 512);
    EXPECT_EQ(static_bytes(graph, step) - static_bytes(graph, without), workspace + 512);
    const Prediction forward = replay(make_forward_program(graph, step, graph.loss));
    const Prediction bare = replay(make_forward_program(graph, without, graph.loss));
    EXPECT_EQ(forward.peak_bytes - bare.peak_bytes, workspace + 512);
    const Program again =
        program_from_json(nlohmann::json::parse(to_json(program, {0}, {}).dump()), "program.json");
    EXPECT_EQ(program_hash(again), program_hash(program));
    prove(program, graph);
  }
}

// The smallest budget has them in it, and no less works.
TEST(Launches, TheSmallestBudgetHasTheWorkspaces) {
  const NominalRates rates{1e15, 4e12, 3e-6, 5e-6};
  const ModelGraph graph = for_a_gpu(chain(4, 2), rates);
  const StepShape step = on_a_gpu(step_shape(1, 1, 0));
  StepShape without = step;
  without.workspaces.clear();
  const auto smallest = [&](const StepShape& of) {
    return find_lean_plans(graph, of, "auto", nullptr).bytes;
  };
  EXPECT_EQ(smallest(step) - smallest(without), workspace + 512);
}

}  // namespace
}  // namespace garonne::plan::test
