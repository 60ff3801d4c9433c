// Steps that keep values and records on lower tiers for a time: the bits of the step that does not,
// and on each tier the bytes that replay says.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>

#include "exec/gpt_rank.hpp"
#include "plan/offload/offload.hpp"
#include "plan/offload/random_offloads.hpp"
#include "plan/program/proofs.hpp"

namespace garonne::exec {
namespace {

namespace fs = std::filesystem;

// On a disk, which the folder for temporary files may not be.
class Copies : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::current_path() / "copies-test-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override {
    EXPECT_TRUE(fs::is_empty(folder_)) << "a file is left on the disk";
    fs::remove_all(folder_);
  }

  Setting moving(Setting setting, Tier tier, unsigned seed) const {
    setting.disk_folder = tier == Tier::Disk ? folder_ : "";
    setting.change = [tier, seed](plan::Program program) {
      std::mt19937 random(seed);
      const auto offloads = plan::test::random_offloads(program, random, 1 + seed % 3, {tier});
      return plan::with_offloads(std::move(program), offloads, {{tier, {}}});
    };
    return setting;
  }

  std::string folder_;
};

int copies_of(const plan::Program& program) {
  int copies = 0;
  for (const plan::Instruction& one : program.instructions) copies += is_copy(one.operation);
  return copies;
}

void expect_the_same_copied_steps(Rank& keeping, Rank& moving, Tier tier) {
  ASSERT_GT(copies_of(moving.program()), 20);
  EXPECT_NO_THROW(plan::prove(moving.program(), moving.model().graph));
  for (std::int64_t number = 1; number <= 2; ++number) {
    const StepOutputs wanted = keeping.step(number);
    const StepOutputs found = moving.step(number);
    EXPECT_EQ(found.loss, wanted.loss);
    EXPECT_EQ(found.gradient_norm, wanted.gradient_norm);
    EXPECT_EQ(moving.gradients(), keeping.gradients());
    expect_predicted_bytes(moving, found);
    EXPECT_EQ(found.live_bytes_below.at(tier), moving.prediction().of(tier).live_bytes);
    EXPECT_EQ(moving.live_bytes(tier), 0);
  }
  for (std::size_t p = 0; p < moving.state().pieces.size(); ++p) {
    EXPECT_TRUE(
        at::equal(moving.state().parameter(p).trained(), keeping.state().parameter(p).trained()));
  }
}

TEST_F(Copies, ChangeNoBitBesideCompute) {
  unsigned seed = 1;
  for (const Precision precision : precisions) {
    for (const char* plan : {"keep-all", "any 7"}) {
      for (const Tier tier : {Tier::Host, Tier::Disk}) {
        Setting setting;
        setting.precision = precision;
        setting.plan = plan;
        setting.micro_batches = 2;
        SCOPED_TRACE(setting.text() + ", " + std::string(to_string(tier)));
        Rank keeping(setting);
        Rank moving(this->moving(setting, tier, ++seed));
        expect_the_same_copied_steps(keeping, moving, tier);
      }
    }
  }
}

// Lanes are late in another way with every seed, and blocks are spoiled.
TEST_F(Copies, ChangeNoBitHoweverLateLanesAre) {
  Setting setting;
  setting.plan = "any 3";
  Rank keeping(setting);
  const StepOutputs wanted = keeping.step();
  for (unsigned seed = 0; seed < 6; ++seed) {
    for (const Tier tier : {Tier::Host, Tier::Disk}) {
      SCOPED_TRACE(std::to_string(seed) + ", " + std::string(to_string(tier)));
      Setting late = moving(setting, tier, seed);
      late.emulated_seed = seed;
      Rank moving(late);
      const StepOutputs found = moving.step();
      EXPECT_EQ(found.loss, wanted.loss);
      EXPECT_EQ(found.gradient_norm, wanted.gradient_norm);
      EXPECT_EQ(moving.gradients(), keeping.gradients());
      EXPECT_EQ(found.live_bytes_below.at(tier), moving.prediction().of(tier).live_bytes);
    }
  }
}

// All that can be away is away as long as it can be.
TEST_F(Copies, MakeRoomOnTheDevice) {
  Setting setting;
  setting.sequence = 96;
  Rank keeping(setting);
  const StepOutputs wanted = keeping.step();
  setting.change = [](plan::Program program) {
    std::vector<plan::Offload> offloads;
    for (const plan::IdleTime& idle : plan::idle_times(program))
      offloads.push_back({idle, Tier::Host, idle.complete_at, idle.last_use + 1, idle.next_use});
    return plan::with_offloads(std::move(program), offloads, {{Tier::Host, {}}});
  };
  Rank moving(setting);
  const StepOutputs found = moving.step();
  EXPECT_EQ(found.loss, wanted.loss);
  EXPECT_EQ(moving.gradients(), keeping.gradients());
  const auto values = [](const Rank& rank) {
    return rank.prediction().peak_bytes - rank.prediction().static_bytes;
  };
  EXPECT_LT(values(moving), values(keeping) / 2);
  Rank enough(setting, found.peak_bytes);
  EXPECT_NO_THROW(enough.step());
  Rank short_of(setting, found.peak_bytes - 1);
  EXPECT_THROW(short_of.step(), RefusedError);
  EXPECT_EQ(short_of.live_bytes(Tier::Host), 0) << "what a refused step has moved is given back";
}

// They would wait for what the Program moves.
TEST_F(Copies, AreAllThatLanesOfCopiesDo) {
  Setting setting;
  setting.micro_batches = 3;
  setting.copied_bytes_per_second = 1e9;
  Rank keeping(setting);
  keeping.step();
  EXPECT_EQ(keeping.device().mark(Lane::CopyIn).number, 0U);
  EXPECT_EQ(keeping.device().mark(Lane::CopyOut).number, 0U);
  Rank moving(this->moving(setting, Tier::Host, 5));
  moving.step();
  for (const Lane lane : {Lane::CopyIn, Lane::CopyOut}) {
    const auto& all = moving.program().instructions;
    const auto copies = std::count_if(
        all.begin(), all.end(), [&](const plan::Instruction& one) { return one.lane == lane; });
    EXPECT_EQ(moving.device().mark(lane).number, static_cast<std::uint64_t>(copies));
  }
}

// The link is so slow that a step is little else, and Compute's seconds are all of the step's.
TEST_F(Copies, AreWaitedForWhereTheProgramSaysSo) {
  Setting setting;
  setting.copied_bytes_per_second = 3e6;
  Rank moving(this->moving(setting, Tier::Host, 5));
  moving.step();
  const auto start = std::chrono::steady_clock::now();
  const StepOutputs found = moving.step(2);
  const std::chrono::duration<double> whole = std::chrono::steady_clock::now() - start;
  double waited = 0;
  double there = 0;
  double least = 0;
  const auto& all = moving.program().instructions;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].lane == Lane::Compute) there += found.measurements[i].seconds;
    if (all[i].operation == plan::Operation::Wait) waited += found.measurements[i].seconds;
    if (all[i].operation != plan::Operation::CopyOut) continue;
    const auto bytes =
        moving.program().buffers[static_cast<std::size_t>(all[i].arguments.inputs[0])].bytes;
    least += static_cast<double>(bytes) / setting.copied_bytes_per_second;
  }
  EXPECT_GT(whole.count(), 0.9 * least);
  EXPECT_GT(waited, 0.5 * least);
  EXPECT_GT(there, 0.9 * whole.count());
}

}  // namespace
}  // namespace garonne::exec
