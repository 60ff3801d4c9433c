// Optimizers whose states are no tensor of the parameter's shape (tests/optim/), those with one
// moment and those that take norms of whole parameters: planned, replayed, run on one rank and in
// shards, saved and continued.
#include "plan/program/program.hpp"
#include "plan/program/proofs.hpp"
#include "plan/program/rank_sums_check.hpp"
#include "plan/program/replay.hpp"
#include "train/plans/zero_rank.hpp"

namespace garonne::train {
namespace {

const std::vector<const char*> optimizers = {"adafactor", "eight-bit", "factored", "lamb",
                                             "lars",      "lion",      "sgd"};
// Those that take sums of whole parameters.
const std::vector<const char*> summing = {"adafactor", "lamb", "lars"};

Variant variant_of(int stage, const char* optimizer, Precision precision = Precision::Float64) {
  Variant variant{stage, precision};
  variant.optimizer = optimizer;
  return variant;
}

bool has_one_moment(const std::string& optimizer) {
  return optimizer == "lars" || optimizer == "lion" || optimizer == "sgd";
}

bool has_blocks(const std::string& optimizer) {
  return optimizer == "eight-bit" || optimizer == "factored";
}

// What adafactor keeps, of matrices and vectors.
std::int64_t numbers_of_sides(const std::vector<std::int64_t>& shape) {
  EXPECT_LE(shape.size(), 2U);
  return shape.size() == 2 ? shape[0] + shape[1] : shape[0] + 1;
}

// Bytes of the states of so many elements, by hand.
std::int64_t state_bytes_by_hand(const std::string& optimizer, std::int64_t elements,
                                 std::int64_t number) {
  if (has_one_moment(optimizer)) return elements * number;
  if (optimizer == "lamb") return 2 * elements * number;
  const std::int64_t blocks = (elements + 255) / 256;
  if (optimizer == "factored") return blocks * 32 * number;
  return elements * number + elements + blocks * 4;
}

std::int64_t planned_state_bytes(const plan::Program& program) {
  std::int64_t bytes = 0;
  for (const plan::Buffer& buffer : program.buffers) {
    if (buffer.kind == plan::BufferKind::OptimizerState)
      bytes += buffer.elements * buffer.element_bytes;
  }
  return bytes;
}

using StateBlocksTest = ZeroTest;

TEST_F(StateBlocksTest, OneRankHoldsTheBytesThatWerePlanned) {
  for (const char* optimizer : optimizers) {
    SCOPED_TRACE(optimizer);
    const auto here = alone(Precision::Float64, optimizer);
    std::int64_t wanted = 0;
    std::int64_t held = 0;
    for (std::size_t k = 0; k < here->state().pieces.size(); ++k) {
      const exec::ParameterState parameter = here->state().parameter(k);
      wanted += optimizer == std::string("adafactor")
                    ? 8 * numbers_of_sides(parameter.parameter.sizes().vec())
                    : state_bytes_by_hand(optimizer, parameter.parameter.numel(), 8);
      for (const at::Tensor& state : parameter.states)
        held += state.numel() * static_cast<std::int64_t>(state.element_size());
    }
    EXPECT_EQ(held, wanted);
    EXPECT_EQ(planned_state_bytes(here->program()), wanted);
    double first = 0;
    double last = 0;
    for (std::int64_t step = 1; step <= 10; ++step) {
      const exec::StepOutputs outputs = here->step(step);
      (step == 1 ? first : last) = outputs.loss;
      EXPECT_LE(outputs.peak_bytes, here->prediction().peak_bytes);
    }
    EXPECT_LT(last, first) << "it learns";
  }
}

TEST_F(StateBlocksTest, ShardsAreCutBetweenBlocksAndTrainAsOneRank) {
  for (const char* optimizer : optimizers) {
    const auto reference = alone(Precision::Float64, optimizer);
    std::vector<double> losses;
    for (std::int64_t step = 1; step <= 6; ++step) losses.push_back(reference->step(step).loss);
    for (const int stage : {1, 2, 3}) {
      SCOPED_TRACE(std::string(optimizer) + " stage " + std::to_string(stage));
      const auto here = rank(variant_of(stage, optimizer));
      const std::int64_t block = has_blocks(optimizer) ? 256 : 1;
      for (const plan::Piece& piece : here->program().pieces) EXPECT_EQ(piece.first % block, 0);
      std::int64_t shards = 0;
      for (const plan::Bucket& bucket : here->program().buckets) {
        if (optimizer != std::string("adafactor")) {
          shards += state_bytes_by_hand(optimizer, bucket.shard.elements, 8);
          continue;
        }
        // Every rank has those of all of its parameters.
        for (const int p : bucket.parameters) {
          const auto& shape = here->model().graph.parameters[static_cast<std::size_t>(p)].shape;
          shards += 8 * numbers_of_sides(shape);
        }
      }
      EXPECT_EQ(planned_state_bytes(here->program()), shards);
      for (std::int64_t step = 1; step <= 6; ++step) {
        const exec::StepOutputs outputs = here->step(step);
        EXPECT_NEAR(outputs.loss, losses[static_cast<std::size_t>(step - 1)], 1e-9);
        EXPECT_LE(outputs.peak_bytes, here->prediction().peak_bytes);
      }
    }
  }
}

// Norms of parameters that no rank has as a whole, and of such that all have.
TEST_F(StateBlocksTest, SumsOfWholeParametersAreProved) {
  for (const char* optimizer : summing) {
    for (const int stage : {0, 1, 2, 3}) {
      SCOPED_TRACE(std::string(optimizer) + " stage " + std::to_string(stage));
      const auto here = rank(variant_of(stage, optimizer, Precision::BFloat16));
      const GridShape grid{session_.size(), 1, 1};
      const auto proved = [&](const plan::Program& program) {
        plan::replay(program);
        plan::prove(program, here->model().graph);
        plan::check_rank_sums(program, grid);
      };
      ASSERT_NO_THROW(proved(here->program()));
      int sums = 0;
      for (std::size_t i = 0; i < here->program().instructions.size(); ++i) {
        const plan::Instruction& one = here->program().instructions[i];
        const bool over_ranks = one.operation == plan::Operation::AllReduce &&
                                one.node.ends_with(".sums") &&
                                one.channel->group == plan::GroupAxis::Data;
        sums += over_ranks ? 1 : 0;
        if (one.operation == plan::Operation::SumTensors && !one.arguments.pieces.empty()) {
          plan::Program less = here->program();
          less.instructions[i].arguments.pieces.pop_back();
          EXPECT_THROW(proved(less), plan::ReplayError);
        }
        if (one.operation == plan::Operation::Update && !one.arguments.pieces.empty()) {
          plan::Program none = here->program();
          none.instructions[i].arguments.inputs.pop_back();
          EXPECT_THROW(proved(none), plan::ReplayError);
        }
        if (!over_ranks) continue;
        // Over other ranks than have the rest of the parameters.
        plan::Program other = here->program();
        other.instructions[i].channel->group = plan::GroupAxis::Tensor;
        EXPECT_THROW(proved(other), plan::ReplayError);
      }
      EXPECT_EQ(sums > 0, stage > 0);
    }
  }
}

// Without shards every rank has whole parameters: no sum depends on how many there are.
TEST_F(StateBlocksTest, TheyTrainAlikeWithoutShards) {
  for (const char* optimizer : summing) {
    SCOPED_TRACE(optimizer);
    const auto reference = alone(Precision::Float64, optimizer);
    const auto here = rank(variant_of(0, optimizer));
    for (std::int64_t step = 1; step <= 6; ++step) {
      EXPECT_NEAR(here->step(step).loss, reference->step(step).loss, 1e-9);
    }
  }
}

TEST_F(StateBlocksTest, ContinuesFromACheckpointWithTheSameBits) {
  for (const char* optimizer : optimizers) {
    for (const int stage : {1, 3}) {
      for (const Precision precision : {Precision::Float64, Precision::BFloat16}) {
        SCOPED_TRACE(std::string(optimizer) + " stage " + std::to_string(stage));
        const std::string where = folder();
        const Variant variant = variant_of(stage, optimizer, precision);
        const auto first = rank(variant);
        for (std::int64_t step = 1; step <= 2; ++step) first->step(step);
        first->save(where, 2, session_);
        const auto second = rank(variant);
        second->load(where, 2);
        for (std::int64_t step = 3; step <= 4; ++step)
          EXPECT_EQ(first->step(step).loss, second->step(step).loss);
        for (const auto& [name, entry] : first->state().buffers.entries())
          EXPECT_TRUE(at::equal(entry.tensor, second->state().buffers.tensor(name))) << name;
        session_.barrier();
      }
    }
  }
}

TEST_F(StateBlocksTest, CheckpointsFitAnyLayout) {
  for (const char* optimizer : optimizers) {
    for (const int stage : {1, 3}) {
      SCOPED_TRACE(std::string(optimizer) + " stage " + std::to_string(stage));
      const std::string where = folder();
      const auto sharded = rank(variant_of(stage, optimizer));
      sharded->step(1);
      sharded->save(where, 1, session_);
      const auto whole = alone(Precision::Float64, optimizer);
      whole->load(where, 1);
      EXPECT_NEAR(sharded->step(2).loss, whole->step(2).loss, 1e-9);
      session_.barrier();
      if (session_.rank() == 0) whole->save(where, 2, session_);
      session_.barrier();
      const auto again = rank(variant_of(stage, optimizer));
      again->load(where, 2);
      EXPECT_NEAR(again->step(3).loss, whole->step(3).loss, 1e-9);
      session_.barrier();
    }
  }
}

// On ranks that have the same and on those that share it, which may be less than a block.
TEST_F(StateBlocksTest, TheCopyThatIsSavedHasTheBytesThatWerePlanned) {
  for (const char* optimizer : {"adafactor", "adamw", "eight-bit", "factored", "lamb", "lion"}) {
    for (const int stage : {0, 1, 3}) {
      SCOPED_TRACE(std::string(optimizer) + " stage " + std::to_string(stage));
      for (const Precision precision : {Precision::Float64, Precision::BFloat16}) {
        const auto here = rank(variant_of(stage, optimizer, precision));
        EXPECT_GT(here->planned_bytes_of_copy(), 0);
        EXPECT_EQ(here->copied_bytes(), here->planned_bytes_of_copy());
      }
    }
  }
}

TEST_F(StateBlocksTest, AReplayRefusesStatesThatDoNotFitTheirPiece) {
  const auto here = rank(variant_of(1, "eight-bit"));
  ASSERT_NO_THROW(plan::replay(here->program()));
  ASSERT_FALSE(here->program().pieces.empty());
  const auto damaged = [&](const std::function<void(plan::Piece&)>& damage) {
    plan::Program program = here->program();
    damage(program.pieces.front());
    EXPECT_THROW(plan::replay(program), plan::ReplayError);
  };
  damaged([](plan::Piece& piece) { ++piece.states[2].elements; });
  damaged([](plan::Piece& piece) { --piece.states[2].elements; });
  damaged([](plan::Piece& piece) { piece.states.pop_back(); });
  damaged([](plan::Piece& piece) { piece.first += 1; });
}

}  // namespace
}  // namespace garonne::train
