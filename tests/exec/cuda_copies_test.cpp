// Steps of a GPU's device over the made-up runtime that keep values, records, masters, states,
// parameters and gradients in pinned memory of the host for a time: the bits of the CPU that keeps
// them, and on both tiers the bytes that replay says.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "exec/cuda_ranks.hpp"
#include "plan/offload/gradient_offload.hpp"
#include "plan/offload/host_update.hpp"
#include "plan/offload/offload.hpp"
#include "plan/offload/paging.hpp"
#include "plan/offload/random_offloads.hpp"
#include "plan/offload/state_offload.hpp"
#include "plan/offload/weight_offload.hpp"
#include "plan/program/proofs.hpp"

namespace garonne::exec {
namespace {

enum class States { Stay, Copied, Updated, Pages };

// Beside parameters and gradients, with as little of the device as can be.
plan::Program with_pages_on_host(plan::Program program) {
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
  return plan::with_paging(std::move(program), pages, Tier::Host, {}, least).value();
}

// Some values and records, and as `states` says all of what updates alone use, too.
std::function<plan::Program(plan::Program)> moving(unsigned seed, States states) {
  return [seed, states](plan::Program program) {
    std::mt19937 random(seed);
    const auto offloads = plan::test::random_offloads(program, random, 2, {Tier::Host});
    program = plan::with_offloads(std::move(program), offloads, {{Tier::Host, {}}});
    if (states == States::Stay) return program;
    if (states == States::Pages) return with_pages_on_host(std::move(program));
    if (states == States::Updated) {
      return plan::with_updates_on_host(program, plan::state_groups(program, 0), {}, 1e9,
                                        plan::GradientCopies::WhenComplete);
    }
    const auto groups = plan::state_groups(program, 0);
    for (std::int64_t budget = program.peak_bytes / 2;; budget += 512) {
      auto moved = plan::with_states_below(program, groups, Tier::Host, {}, budget);
      if (moved) return std::move(*moved);
    }
  };
}

int copies_of(const plan::Program& program, plan::Operation operation) {
  int copies = 0;
  for (const plan::Instruction& one : program.instructions) copies += one.operation == operation;
  return copies;
}

class CudaCopies : public testing::TestWithParam<std::uint64_t> {};

TEST_P(CudaCopies, ChangeNoBit) {
  for (const Precision precision : {Precision::Float32, Precision::BFloat16}) {
    for (const States states : {States::Stay, States::Copied, States::Updated, States::Pages}) {
      SCOPED_TRACE(std::string(precision_name(precision)) + ", states " +
                   std::to_string(static_cast<int>(states)));
      Setting setting{precision, "selective"};
      if (GetParam() == 2) setting.optimizer = "lamb";
      CpuRank cpu(setting);
      setting.change = moving(static_cast<unsigned>(GetParam()), states);
      GpuRank gpu(setting, {.delay_seed = GetParam()});
      plan::prove(gpu.program(), gpu.model().graph);
      ASSERT_GT(copies_of(gpu.program(), plan::Operation::CopyOut), 10);
      ASSERT_GT(copies_of(gpu.program(), plan::Operation::CopyIn), 10);
      EXPECT_EQ(cpu.state(), gpu.state());
      for (std::int64_t number = 1; number <= 2; ++number) {
        const StepOutputs wanted = cpu.step(number);
        const StepOutputs made = gpu.step(number);
        EXPECT_EQ(wanted.loss, made.loss);
        EXPECT_EQ(wanted.gradient_norm, made.gradient_norm);
        EXPECT_EQ(cpu.gradients(), gpu.gradients());
        EXPECT_LE(made.peak_bytes, gpu.prediction().peak_bytes);
        EXPECT_EQ(made.live_bytes_below.at(Tier::Host), gpu.prediction().host.live_bytes);
        EXPECT_GT(made.copy_seconds.at(Lane::CopyOut), 0);
        EXPECT_GT(made.copy_seconds.at(Lane::CopyIn), 0);
        EXPECT_EQ(gpu.live_bytes_on_host(), gpu.prediction().host.static_bytes);
      }
      EXPECT_EQ(cpu.state(), gpu.state());
      EXPECT_EQ(cpu.evaluate(), gpu.evaluate());
      EXPECT_EQ(gpu.runtime().violations(), std::vector<std::string>());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, CudaCopies, testing::Range<std::uint64_t>(1, 4));

}  // namespace
}  // namespace garonne::exec
