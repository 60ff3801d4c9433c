// Steps of a GPU's device over the made-up runtime that keep values, records, masters, states,
// parameters and gradients in pinned memory of the host, or on a disk, for a time: the bits of the
// CPU that keeps them, and on all tiers the bytes that replay says.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "exec/cuda_ranks.hpp"
#include "plan/offload/gradient_offload.hpp"
#include "plan/offload/host_update.hpp"
#include "plan/offload/offload.hpp"
#include "plan/offload/paging.hpp"
#include "plan/offload/random_offloads.hpp"
#include "plan/offload/rotated_updates.hpp"
#include "plan/offload/state_offload.hpp"
#include "plan/offload/weight_offload.hpp"
#include "plan/program/proofs.hpp"

namespace garonne::exec {
namespace {

// Beside: the next step.
enum class States { Stay, Copied, Updated, Pages, Beside };

// Beside parameters and gradients, with as little of the device as can be.
plan::Program with_pages(plan::Program program, Tier tier) {
  program = plan::with_divided_squares(std::move(program));
  std::vector<int> pages = plan::movable_weights(program, 0);
  const std::vector<int> gradients = plan::movable_gradients(program, 0);
  pages.insert(pages.end(), gradients.begin(), gradients.end());
  for (const plan::StateGroup& group : plan::state_groups(program, 0))
    pages.insert(pages.end(), group.buffers.begin(), group.buffers.end());
  std::vector<std::int64_t> bytes = plan::replay(program).during_bytes;
  const std::vector<std::int64_t> idle = plan::idle_bytes(program, pages);
  for (std::size_t place = 0; place < idle.size(); ++place) bytes[place] -= idle[place];
  const std::int64_t least = *std::max_element(bytes.begin(), bytes.end());
  return plan::with_paging(std::move(program), pages, tier, {}, least).value();
}

// Some values and records, and as `states` says all of what updates alone use, too.
std::function<plan::Program(plan::Program)> moving(unsigned seed, States states,
                                                   const std::vector<Tier>& tiers) {
  return [seed, states, tiers](plan::Program program) {
    std::mt19937 random(seed);
    const auto offloads = plan::test::random_offloads(program, random, 2, tiers);
    std::map<Tier, plan::TierLinks> links;
    for (const Tier tier : tiers) links[tier] = {};
    program = plan::with_offloads(std::move(program), offloads, links);
    if (states == States::Stay) return program;
    if (states == States::Pages) return with_pages(std::move(program), tiers.back());
    if (states == States::Updated || states == States::Beside) {
      program = plan::with_updates_on_host(program, plan::state_groups(program, 0), {}, 1e9,
                                           plan::GradientCopies::WhenComplete);
      return states == States::Updated ? program : plan::with_rotated_updates(program).value();
    }
    const auto groups = plan::state_groups(program, 0);
    for (std::int64_t budget = program.peak_bytes / 2;; budget += 512) {
      auto moved = plan::with_states_below(program, groups, tiers.back(), {}, budget);
      if (moved) return std::move(*moved);
    }
  };
}

int copies_of(const plan::Program& program, plan::Operation operation) {
  int copies = 0;
  for (const plan::Instruction& one : program.instructions) copies += one.operation == operation;
  return copies;
}

class CudaCopies : public testing::TestWithParam<std::uint64_t> {
 protected:
  // `copies`: those that there are many of.
  static void expect_no_bit_changed(Setting setting, States states, const std::vector<Tier>& tiers,
                                    const std::vector<plan::Operation>& copies) {
    const std::uint64_t seed = GetParam();
    if (seed == 2) setting.optimizer = "lamb";
    CpuRank cpu(setting);
    setting.change = moving(static_cast<unsigned>(seed), states, tiers);
    GpuRank gpu(setting, {.delay_seed = seed});
    plan::prove(gpu.program(), gpu.model().graph);
    for (const plan::Operation copy : copies) ASSERT_GT(copies_of(gpu.program(), copy), 10);
    EXPECT_EQ(cpu.state(), gpu.state());
    for (std::int64_t number = 1; number <= 2; ++number) {
      const StepOutputs made = same_steps(cpu, gpu, number);
      const bool beside = states == States::Beside;
      for (const Tier tier : tiers) {
        const plan::TierBytes& predicted = gpu.prediction().of(tier);
        // The first one has none before it.
        if (!beside || number > 1) {
          EXPECT_EQ(made.live_bytes_below.at(tier), predicted.live_bytes);
        }
        if (beside) {
          EXPECT_GT(gpu.live_bytes_on(tier), predicted.static_bytes);
        }
        if (number == 2) gpu.flush();
        if (!beside || number > 1) {
          EXPECT_EQ(gpu.live_bytes_on(tier), predicted.static_bytes);
        }
      }
      for (const plan::Operation copy : copies)
        EXPECT_GT(made.copy_seconds.at(plan::lane_of_copy(copy)), 0);
    }
    EXPECT_EQ(cpu.state(), gpu.state());
    EXPECT_EQ(cpu.evaluate(), gpu.evaluate());
    EXPECT_EQ(gpu.runtime().violations(), std::vector<std::string>());
  }
};

TEST_P(CudaCopies, ChangeNoBit) {
  for (const Precision precision : {Precision::Float32, Precision::BFloat16}) {
    for (const States states :
         {States::Stay, States::Copied, States::Updated, States::Pages, States::Beside}) {
      if (states == States::Beside && precision == Precision::Float32) continue;
      SCOPED_TRACE(std::string(precision_name(precision)) + ", states " +
                   std::to_string(static_cast<int>(states)));
      expect_no_bit_changed({precision, "selective"}, states, {Tier::Host},
                            {plan::Operation::CopyOut, plan::Operation::CopyIn});
    }
  }
}

TEST_P(CudaCopies, OfADiskChangeNoBit) {
  using plan::Operation;
  const std::vector<Operation> of_disk = {Operation::DiskWrite, Operation::DiskRead};
  switch (GetParam()) {
    case 1:
      return expect_no_bit_changed({Precision::Float32, "selective"}, States::Pages, {Tier::Disk},
                                   of_disk);
    case 2:
      return expect_no_bit_changed({Precision::BFloat16, "selective"}, States::Copied, {Tier::Disk},
                                   of_disk);
    default:
      return expect_no_bit_changed(
          {Precision::BFloat16, "selective"}, States::Copied, {Tier::Host, Tier::Disk},
          {Operation::CopyOut, Operation::CopyIn, Operation::DiskWrite, Operation::DiskRead});
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, CudaCopies, testing::Range<std::uint64_t>(1, 4));

}  // namespace
}  // namespace garonne::exec
