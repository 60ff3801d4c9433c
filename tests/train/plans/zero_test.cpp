// ZeRO on real ranks against one rank that holds everything: losses, gradients, bytes, checkpoints.
#include <iterator>

#include "device/emulated_device.hpp"
#include "device/lateness.hpp"
#include "train/plans/zero_rank.hpp"

namespace garonne::train {
namespace {

std::vector<Variant> variants() {
  return {{1},
          {2},
          {3, Precision::Float64, 0},
          {3, Precision::Float64, 2},
          {3, Precision::Float64, 1, "full"}};
}

TEST_F(ZeroTest, TrainsAsOneRankThatHoldsEverything) {
  const auto reference = alone(Precision::Float64);
  std::vector<double> losses;
  std::map<int, std::vector<double>> gradients;
  for (std::int64_t step = 1; step <= 10; ++step) {
    losses.push_back(reference->step(step).loss);
    if (step == 1) gradients = reference->gradients();
  }
  for (const Variant& variant : variants()) {
    SCOPED_TRACE("stage " + std::to_string(variant.stage) + ", ahead " +
                 std::to_string(variant.ahead));
    const auto here = rank(variant);
    for (std::int64_t step = 1; step <= 10; ++step) {
      const exec::StepOutputs outputs = here->step(step);
      EXPECT_NEAR(outputs.loss, losses[static_cast<std::size_t>(step - 1)], 1e-9);
      EXPECT_LE(outputs.peak_bytes, here->prediction().peak_bytes);
      EXPECT_GE(static_cast<double>(outputs.peak_bytes),
                0.99 * static_cast<double>(here->prediction().peak_bytes));
      if (step > 1) continue;
      for (const auto& bucket : here->program().buckets) {
        for (const auto& piece : plan::shard_pieces(bucket, session_.rank())) {
          const std::vector<double>& mine = here->gradients().at(piece.parameter);
          ASSERT_EQ(static_cast<std::int64_t>(mine.size()), piece.elements);
          for (std::int64_t i = 0; i < piece.elements; ++i) {
            ASSERT_NEAR(mine[static_cast<std::size_t>(i)],
                        gradients.at(piece.parameter)[static_cast<std::size_t>(piece.first + i)],
                        1e-12);
          }
        }
      }
    }
  }
}

TEST_F(ZeroTest, TrainsInMixedPrecision) {
  const auto reference = alone(Precision::BFloat16);
  std::vector<double> losses;
  for (std::int64_t step = 1; step <= 5; ++step) losses.push_back(reference->step(step).loss);
  for (Variant variant : variants()) {
    variant.precision = Precision::BFloat16;
    SCOPED_TRACE("stage " + std::to_string(variant.stage));
    const auto here = rank(variant);
    for (std::int64_t step = 1; step <= 5; ++step) {
      const exec::StepOutputs outputs = here->step(step);
      EXPECT_NEAR(outputs.loss, losses[static_cast<std::size_t>(step - 1)], 5e-3);
      EXPECT_LE(outputs.peak_bytes, here->prediction().peak_bytes);
    }
  }
}

TEST_F(ZeroTest, HasTheSameBitsWhateverThePlan) {
  for (const int stage : {1, 2, 3}) {
    SCOPED_TRACE("stage " + std::to_string(stage));
    const auto wanted = rank({stage, Precision::Float32, 0, "keep-all"});
    const auto others = {rank({stage, Precision::Float32, 2, "keep-all"}),
                         rank({stage, Precision::Float32, 0, "full"})};
    for (std::int64_t step = 1; step <= 3; ++step) {
      const exec::StepOutputs outputs = wanted->step(step);
      for (const auto& other : others) {
        const exec::StepOutputs same = other->step(step);
        EXPECT_EQ(same.loss, outputs.loss);
        EXPECT_EQ(same.gradient_norm, outputs.gradient_norm);
        EXPECT_EQ(other->gradients(), wanted->gradients());
      }
    }
  }
}

TEST_F(ZeroTest, ContinuesFromACheckpointWithTheSameBits) {
  for (const int stage : {1, 2, 3}) {
    for (const Precision precision : {Precision::Float64, Precision::BFloat16}) {
      SCOPED_TRACE("stage " + std::to_string(stage));
      const std::string where = folder();
      const Variant variant{stage, precision};
      const auto first = rank(variant);
      for (std::int64_t step = 1; step <= 2; ++step) first->step(step);
      first->save(where, 2, session_);
      const auto second = rank(variant);
      second->load(where, 2);
      for (std::int64_t step = 3; step <= 4; ++step)
        EXPECT_EQ(first->step(step).loss, second->step(step).loss);
      for (std::size_t k = 0; k < first->state().pieces.size(); ++k) {
        const exec::ParameterState a = first->state().parameter(k);
        const exec::ParameterState b = second->state().parameter(k);
        EXPECT_TRUE(at::equal(a.trained(), b.trained()));
        EXPECT_TRUE(at::equal(a.parameter, b.parameter));
      }
      // Also what the others train and this rank holds.
      for (const auto& [name, entry] : first->state().buffers.entries())
        EXPECT_TRUE(at::equal(entry.tensor, second->state().buffers.tensor(name))) << name;
      session_.barrier();
    }
  }
}

TEST_F(ZeroTest, CheckpointsFitAnyLayout) {
  for (const int stage : {1, 2, 3}) {
    SCOPED_TRACE("stage " + std::to_string(stage));
    const std::string where = folder();
    const auto sharded = rank({stage});
    sharded->step(1);
    sharded->save(where, 1, session_);
    // On one rank without shards, and back.
    const auto whole = alone(Precision::Float64);
    whole->load(where, 1);
    EXPECT_NEAR(sharded->step(2).loss, whole->step(2).loss, 1e-9);
    session_.barrier();
    if (session_.rank() == 0) whole->save(where, 2, session_);
    session_.barrier();
    const auto again = rank({stage});
    again->load(where, 2);
    EXPECT_NEAR(again->step(3).loss, whole->step(3).loss, 1e-9);
    session_.barrier();
  }
}

// The squares are summed before any sum over the ranks is waited for.
void forget_waits(plan::Program& program) {
  std::vector<plan::Instruction>& instructions = program.instructions;
  const auto is = [](plan::Operation operation) {
    return [operation](const plan::Instruction& i) { return i.operation == operation; };
  };
  const auto squares = std::ranges::find_if(instructions, is(plan::Operation::SumSquares));
  const auto last = std::find_if(std::reverse_iterator(squares), instructions.rend(),
                                 is(plan::Operation::AllReduce));
  ASSERT_NE(last, instructions.rend());
  // What is between are waits, whose places in the list nothing names.
  const auto first_wait = last.base();
  for (auto wait = first_wait; wait != squares; ++wait)
    ASSERT_EQ(wait->operation, plan::Operation::Wait);
  std::rotate(first_wait, squares, squares + 1);
}

// Sums that are late until they are waited for: right where they are, seen where they are not.
TEST_F(ZeroTest, LateSumsAreWaitedForAndForgottenWaitsAreSeen) {
  const auto late = [&](bool compute_thread) {
    // Some seed that holds all sums of the step back.
    std::uint64_t seed = 0;
    const auto holds = [&](std::uint64_t number) {
      return device::lateness_of(seed, {Lane::Collective, number}, 0).until_asked_for;
    };
    while (!(holds(1) && holds(2) && holds(3) && holds(4))) ++seed;
    return std::make_unique<device::EmulatedDevice>(device::EmulatedSettings{
        .limit_bytes = 0, .delay_seed = seed, .compute_thread = compute_thread});
  };
  const Variant variant{0, Precision::Float64};
  const auto emulated = [&](bool compute_thread) {
    return std::make_unique<Rank>(variant, session_.size(), session_.rank(), transport_.get(),
                                  late(compute_thread));
  };
  const auto wanted = rank(variant);
  const exec::StepOutputs right = wanted->step(1);
  const auto same = emulated(true);
  EXPECT_EQ(same->step(1).gradient_norm, right.gradient_norm);
  EXPECT_EQ(same->step(2).gradient_norm, wanted->step(2).gradient_norm);
  // Here the squares are summed before the next instruction is looked at. A thread of Compute may
  // get to them late, after the caller has asked for the sums elsewhere.
  const auto forgets = emulated(false);
  forget_waits(forgets->program());
  EXPECT_NE(forgets->step(1).gradient_norm, right.gradient_norm);
}

}  // namespace
}  // namespace garonne::train
