// Programs under ZeRO: bytes by the formula, what is whole when it is read, sums and gathers.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.hpp"
#include "plan/program/content_check.hpp"
#include "plan/program/model_check.hpp"
#include "plan/program/order_check.hpp"
#include "plan/program/proofs.hpp"
#include "plan/program/replay.hpp"
#include "plan/stage/stage_planner.hpp"
#include "plan/step/graphs.hpp"
#include "plan/step/rank_program.hpp"

namespace garonne::plan {
namespace {

using namespace test;

StepShape zero_shape(int stage, int micro_batches, int ranks, std::int64_t bucket_bytes) {
  StepShape step = step_shape(micro_batches, ranks, bucket_bytes);
  step.zero = stage;
  return step;
}

// States of every shape: 8-bit codes, a scale for 256 elements, five numbers for 96.
std::vector<StateSpec> states_of_blocks() {
  return {{.name = "first_moment"},
          {.name = "codes", .type = StateType::UInt8},
          {.name = "scales", .type = StateType::Float32, .blocks = {256, 1}},
          {.name = "fives", .blocks = {96, 5}}};
}

// Element by element of the definition: bytes of an element, whole or over the data ranks, with
// buckets padded to shards of a multiple of 256 elements, and of whole blocks of all states.
std::int64_t static_bytes_by_formula(const Program& program, const StepShape& step) {
  const auto ranks = static_cast<std::int64_t>(step.data_group.size());
  const ElementBytes& bytes = step.element_bytes;
  std::int64_t sum = 0;
  for (const auto& bucket : program.buckets) {
    std::int64_t shard = 0;
    const auto cuts_a_block = [&](const StateSpec& state) {
      return shard % state.blocks.elements != 0;
    };
    const auto& states = step.optimizer_states;
    while (shard * ranks < bucket.elements ||
           std::any_of(states.begin(), states.end(), cuts_a_block))
      shard += 256;
    sum += (step.zero < 3 ? shard * ranks : shard) * bytes.parameter + shard * bytes.master;
    for (const StateSpec& state : states) {
      const std::int64_t of_number = state.type == StateType::UInt8     ? 1
                                     : state.type == StateType::Float32 ? 4
                                                                        : bytes.state;
      const std::int64_t all = shard / state.blocks.elements * state.blocks.numbers * of_number;
      sum += (all + step.granularity - 1) / step.granularity * step.granularity;
    }
  }
  return sum;
}

// Gradients once the last bucket is reduced: what waits for the update.
std::int64_t gradient_bytes_before_norm(const Program& program) {
  std::set<int> live;
  for (const auto& instruction : program.instructions) {
    if (instruction.operation == Operation::SumSquares) break;
    for (const int id : instruction.writes) live.insert(id);
    for (const int id : instruction.frees) live.erase(id);
  }
  std::int64_t bytes = 0;
  for (const int id : live) {
    if (program.buffers[as_index(id)].kind == BufferKind::Gradient)
      bytes += program.buffers[as_index(id)].bytes;
  }
  return bytes;
}

// Follows each bucket: nodes read what has been gathered from shards that nothing has updated
// since, every contribution is in a sum, every sum is in the shard, every shard is updated.
void check_meaning(const ModelGraph& graph, const StepShape& step, const Program& program) {
  std::map<int, int> bucket_of;
  for (std::size_t number = 0; number < program.buckets.size(); ++number) {
    for (const int p : program.buckets[number].parameters) bucket_of[p] = static_cast<int>(number);
  }
  std::map<int, int> gathered;       // buffer -> bucket
  std::map<int, int> contributions;  // bucket -> not yet reduced
  std::map<int, int> reduced;        // buffer -> contributions in it
  std::map<int, int> kept;           // bucket -> contributions in the shard
  std::map<int, int> wanted;         // bucket -> contributions of a step
  std::set<int> updated;
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    const Arguments& arguments = instruction.arguments;
    for (std::size_t k = 0; k < arguments.parameters.size(); ++k) {
      const int p = graph.nodes[as_index(instruction.node_index)].parameters[k];
      const Bucket& bucket = program.buckets[as_index(bucket_of[p])];
      if (step.zero < 3) {
        EXPECT_EQ(arguments.parameters[k].buffer, bucket.shard.parameter);
      } else {
        ASSERT_TRUE(gathered.count(arguments.parameters[k].buffer)) << describe(instruction);
        EXPECT_EQ(gathered[arguments.parameters[k].buffer], bucket_of[p]);
      }
      const auto place = std::find(bucket.parameters.begin(), bucket.parameters.end(), p);
      EXPECT_EQ(arguments.parameters[k].offset,
                bucket.offsets[static_cast<std::size_t>(place - bucket.parameters.begin())]);
    }
    if (is_backward(instruction.operation)) {
      for (std::size_t k = 0; k < arguments.parameter_gradients.size(); ++k) {
        const int b = bucket_of[graph.nodes[as_index(instruction.node_index)].parameters[k]];
        ++contributions[b];
        ++wanted[b];
      }
    }
    if (instruction.operation == Operation::ReduceScatter) {
      reduced[arguments.inputs[0]] = contributions[instruction.bucket];
      contributions[instruction.bucket] = 0;
      if (step.zero == 1) kept[instruction.bucket] += reduced[arguments.inputs[0]];
    }
    if (instruction.operation == Operation::KeepShard) {
      kept[instruction.bucket] += reduced[arguments.inputs[0]];
      const GradientTarget& target = arguments.parameter_gradients[0];
      EXPECT_EQ(target.range.buffer, program.buckets[as_index(instruction.bucket)].shard.gradient);
    }
    if (instruction.operation == Operation::Wait) {
      const Instruction& waited = program.instructions[as_index(instruction.completes)];
      if (waited.operation == Operation::AllGather && step.zero == 3)
        gathered[waited.arguments.output] = waited.bucket;
    }
    if (instruction.operation == Operation::Update) {
      EXPECT_EQ(kept[instruction.bucket], wanted[instruction.bucket]);
      updated.insert(instruction.bucket);
      gathered.clear();
    }
    for (const int id : instruction.frees) gathered.erase(id);
  }
  EXPECT_EQ(updated.size(), program.buckets.size());
}

void check(const ModelGraph& graph, const StepShape& step, const NodeSchedule& schedule) {
  const Program program =
      make_training_program(graph, step, same_for_all(schedule, step.micro_batches));
  Prediction prediction;
  ASSERT_NO_THROW(prediction = replay(program));
  EXPECT_EQ(prediction.static_bytes, static_bytes_by_formula(program, step));
  EXPECT_EQ(prediction.static_bytes, static_bytes(graph, step));
  std::int64_t shards = 0;
  for (const auto& bucket : program.buckets) shards += bucket.shard.elements;
  const auto ranks = static_cast<std::int64_t>(step.data_group.size());
  EXPECT_EQ(gradient_bytes_before_norm(program),
            shards * step.element_bytes.gradient * (step.zero == 1 ? ranks : 1));
  EXPECT_NO_THROW(check_against_model(program, graph));
  EXPECT_NO_THROW(check_order(program));
  EXPECT_NO_THROW(check_contents(program, graph));
  check_meaning(graph, step, program);
  EXPECT_NO_THROW(replay_together(std::vector<Program>(step.data_group.size(), program)));
}

TEST(Zero, MakesRightProgramsOfAnyModel) {
  for (unsigned seed = 1; seed <= 8; ++seed) {
    const ModelGraph graph = random_graph(seed);
    for (const auto& [name, schedule] : policy_schedules(graph)) {
      for (int stage = 1; stage <= 3; ++stage) {
        for (const int ranks : {2, 3}) {
          for (const int micro_batches : {1, 3}) {
            if (HasFailure()) return;
            SCOPED_TRACE("seed " + std::to_string(seed) + " " + name + " stage " +
                         std::to_string(stage) + " ranks " + std::to_string(ranks));
            StepShape step = zero_shape(stage, micro_batches, ranks, 1000);
            step.element_bytes = seed % 2 == 0 ? ElementBytes{2, 4, 4, 4} : ElementBytes();
            if (seed % 4 == 3) step.optimizer_states = states_of_blocks();
            step.gathers_ahead = static_cast<int>(seed % 3);
            check(graph, step, schedule);
          }
        }
      }
    }
  }
}

TEST(Zero, IsNothingOnOneDataRank) {
  const ModelGraph graph = random_graph(3);
  const NodeSchedule schedule = schedule_of(graph, "full");
  const auto hash = [&](int stage) {
    return program_hash(
        make_training_program(graph, zero_shape(stage, 2, 1, 0), same_for_all(schedule, 2)));
  };
  EXPECT_EQ(hash(0), hash(3));
}

TEST(Zero, PiecesCoverEveryParameterOnce) {
  const ModelGraph graph = random_graph(5);
  const Program program = make_training_program(graph, zero_shape(2, 1, 3, 1 << 20),
                                                same_for_all(schedule_of(graph, "full"), 1));
  std::map<int, std::int64_t> next;
  for (const auto& bucket : program.buckets) {
    for (int member = 0; member < 3; ++member) {
      for (const auto& piece : shard_pieces(bucket, member)) {
        EXPECT_EQ(piece.first, next[piece.parameter]);
        EXPECT_LE(piece.offset + piece.elements, bucket.shard.elements);
        next[piece.parameter] += piece.elements;
      }
    }
  }
  for (std::size_t p = 0; p < graph.parameters.size(); ++p)
    EXPECT_EQ(next[static_cast<int>(p)], graph.parameters[p].elements);
}

TEST(Zero, ShardsAreCutBetweenBlocksOfStates) {
  for (unsigned seed = 1; seed <= 8; ++seed) {
    const ModelGraph graph = random_graph(seed);
    StepShape step = zero_shape(static_cast<int>(seed % 3) + 1, 1, 3, 1 << 20);
    step.optimizer_states = states_of_blocks();
    const Program program = make_training_program(
        graph, step, same_for_all(schedule_of(graph, "full"), step.micro_batches));
    std::map<int, std::vector<std::int64_t>> numbers;  // by parameter: of its states
    for (int rank = 0; rank < 3; ++rank) {
      const Program own =
          program_of_rank(program, graph, {rank, {rank, 0, 0}, step.data_group, {}, {}, {}});
      ASSERT_NO_THROW(replay(own));
      const Program again =
          program_from_json(nlohmann::json::parse(to_json(own, {rank}, {}).dump()), "p.json");
      EXPECT_EQ(program_hash(again), program_hash(own));
      for (const Piece& piece : own.pieces) {
        EXPECT_EQ(piece.first % 768, 0) << "whole blocks of 256 and of 96";
        ASSERT_EQ(piece.states.size(), 4U);
        auto& sums = numbers[piece.parameter];
        sums.resize(4);
        for (std::size_t k = 0; k < 4; ++k) sums[k] += piece.states[k].elements;
      }
    }
    for (std::size_t p = 0; p < graph.parameters.size(); ++p) {
      const std::int64_t elements = graph.parameters[p].elements;
      EXPECT_EQ(numbers[static_cast<int>(p)],
                (std::vector<std::int64_t>{elements, elements, (elements + 255) / 256,
                                           (elements + 95) / 96 * 5}));
    }
  }
}

TEST(Zero, EvaluationGathersToo) {
  const ModelGraph graph = chain(4, 2);
  std::int64_t before = 0;
  for (int ahead = 0; ahead <= 2; ++ahead) {
    StepShape step = zero_shape(3, 1, 2, 1 << 20);
    step.gathers_ahead = ahead;
    const Program program = make_forward_program(graph, step, graph.loss);
    EXPECT_EQ(replay(program).static_bytes, static_bytes_by_formula(program, step));
    EXPECT_GE(replay(program).peak_bytes, before);
    before = replay(program).peak_bytes;
    EXPECT_NO_THROW(replay_together({program, program}));
    EXPECT_NO_THROW(prove(program, graph));
  }
}

TEST(Zero, PlannerTakesTheWayToCommunicateThatFits) {
  const ModelGraph graph = chain(6, 2);
  const StepShape step = zero_shape(3, 2, 2, 1 << 20);
  const std::int64_t enough = std::int64_t{1} << 40;
  const StagePlan fast = plan_stage(graph, step, {enough});
  EXPECT_NE(fast.program.name.find("gathers ahead"), std::string::npos);
  const StagePlan lean = plan_stage(graph, step, {fast.minimum_budget_bytes});
  EXPECT_LE(lean.prediction.peak_bytes, fast.minimum_budget_bytes);
  EXPECT_GE(lean.prediction.seconds, fast.prediction.seconds);
  EXPECT_THROW(plan_stage(graph, step, {fast.minimum_budget_bytes - 1}), PlanError);
}

}  // namespace
}  // namespace garonne::plan
