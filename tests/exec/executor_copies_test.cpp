// Steps that keep values and records on lower tiers for a time: the bits of the step that does not,
// and on each tier the bytes that replay says.
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace garonne::exec
