// Programs whose waits are right give the reference's bits however late lanes are; programs with
// one wait, `after` or free out of place give others.
#include "toy_program.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

namespace garonne::device {
namespace {

constexpr std::uint64_t toy_delay_seeds = 20;

// Half of the seeds with Compute as a thread, half on the calling one; some with slow copies.
EmulatedSettings delayed(std::uint64_t seed) {
  EmulatedSettings settings;
  settings.limit_bytes = 1 << 20;
  settings.delay_seed = seed;
  settings.longest_delay_seconds = 0.0003;
  settings.compute_thread = seed % 2 == 0;
  settings.longest_wait_seconds = 60;
  if (seed % 5 == 0) settings.bytes_per_second = {{Lane::CopyOut, 8e6}, {Lane::CopyIn, 16e6}};
  return settings;
}

TEST(ToyProgram, GivesTheReferencesBitsHoweverLateLanesAre) {
  int copies = 0;
  int kernels = 0;
  int waits = 0;
  int followers = 0;
  int frees = 0;
  for (std::uint64_t number = 0; number < 12; ++number) {
    const ToyProgram program = make_toy_program(number, 80);
    for (const ToyStep& step : program.steps) {
      copies += step.operation == ToyOperation::Copy;
      kernels += step.operation == ToyOperation::Kernel && step.lane == Lane::HostCompute;
      waits += step.operation == ToyOperation::Wait;
      frees += step.operation == ToyOperation::Free;
      followers += !step.after.empty();
    }
    const ToyResult reference = toy_reference(program);
    ASSERT_GT(reference.size(), 3U);
    for (std::uint64_t seed = 0; seed < toy_delay_seeds; ++seed) {
      ASSERT_EQ(run_toy(program, delayed(seed)), reference) << "program " << number << ", " << seed;
    }
  }
  // Of everything there is enough for the above to mean something.
  for (const int count : {copies, kernels, waits, followers, frees}) EXPECT_GE(count, 50);
}

// What follows races on purpose, which the thread sanitizer rightly forbids.
#ifndef __SANITIZE_THREAD__

bool shown(const ToyProgram& program, const ToyResult& reference) {
  for (std::uint64_t seed = 0; seed < toy_delay_seeds; ++seed) {
    if (run_toy(program, delayed(seed)) != reference) return true;
  }
  return false;
}

bool has_nan(const ToyResult& result) {
  return std::ranges::any_of(result, [](const auto& buffer) {
    return std::ranges::any_of(
        buffer.second, [](std::uint32_t bits) { return (bits & 0x7FFFFFFFU) > 0x7F800000U; });
  });
}

bool nan_shown(const ToyProgram& program) {
  for (std::uint64_t seed = 0; seed < toy_delay_seeds; ++seed) {
    if (has_nan(run_toy(program, delayed(seed)))) return true;
  }
  return false;
}

constexpr int device_buffer = 0;
constexpr int host_buffer = 1;
constexpr int other_device = 2;
constexpr int other_host = 3;

ToyStep make(int buffer) {
  return {.operation = ToyOperation::Make, .buffer = buffer};
}
ToyStep kernel(Lane lane, int out, std::vector<int> reads, std::vector<int> after = {}) {
  return {.operation = ToyOperation::Kernel,
          .lane = lane,
          .buffer = out,
          .reads = std::move(reads),
          .factors = {0.5F, -0.25F, 3.0F},
          .after = std::move(after)};
}
ToyStep copy(Lane lane, int to, int from, std::vector<int> after = {}) {
  return {.operation = ToyOperation::Copy,
          .lane = lane,
          .buffer = to,
          .reads = {from},
          .after = std::move(after)};
}
ToyStep wait_for(int step) {
  return {.operation = ToyOperation::Wait, .waits_for = step};
}
ToyStep free_buffer(int buffer) {
  return {.operation = ToyOperation::Free, .buffer = buffer};
}

// Out and in again by way of the host, where it is changed; the old block is freed in between.
ToyProgram round_trip() {
  ToyProgram program;
  program.tiers = {Tier::Device, Tier::Host, Tier::Device, Tier::Host};
  program.steps = {
      make(device_buffer),                                                     // 0
      make(host_buffer),                                                       // 1
      make(other_host),                                                        // 2
      kernel(Lane::Compute, device_buffer, {}),                                // 3
      copy(Lane::CopyOut, host_buffer, device_buffer),                         // 4
      kernel(Lane::HostCompute, other_host, {host_buffer, host_buffer}, {4}),  // 5
      wait_for(4),                                                             // 6
      free_buffer(device_buffer),                                              // 7
      make(other_device),                                                      // 8
      copy(Lane::CopyIn, other_device, other_host, {5}),                       // 9
      wait_for(9),                                                             // 10
      kernel(Lane::Compute, other_device, {other_device, other_device}),       // 11
  };
  // A kernel reads its neighbours, so it may not write what it reads second.
  program.tiers.push_back(Tier::Device);
  program.steps.back() = make(4);
  program.steps.push_back(kernel(Lane::Compute, 4, {other_device, other_device}));  // 12
  return program;
}

ToyProgram without(ToyProgram program, std::size_t step) {
  program.steps[step] = {};
  return program;
}

TEST(ToyFaults, TheProgramTheyAreIn) {
  const ToyProgram program = round_trip();
  EXPECT_FALSE(shown(program, toy_reference(program)));
  EXPECT_FALSE(nan_shown(program));
}

TEST(ToyFaults, AMissingJoinBeforeARead) {
  const ToyProgram program = round_trip();
  EXPECT_TRUE(shown(without(program, 10), toy_reference(program)));
  EXPECT_TRUE(nan_shown(without(program, 10)));
}

TEST(ToyFaults, AMissingJoinBeforeAFree) {
  const ToyProgram program = round_trip();
  EXPECT_TRUE(shown(without(program, 6), toy_reference(program)));
  EXPECT_TRUE(nan_shown(without(program, 6)));
}

TEST(ToyFaults, AMissingJoinBeforeAWrite) {
  ToyProgram program = round_trip();
  program.steps[7] = kernel(Lane::Compute, device_buffer, {});
  program.steps[7].factors[2] = -5;
  EXPECT_FALSE(shown(program, toy_reference(program)));
  EXPECT_TRUE(shown(without(program, 6), toy_reference(program)));
}

TEST(ToyFaults, AFreeBeforeTheJoin) {
  ToyProgram program = round_trip();
  std::swap(program.steps[6], program.steps[7]);
  EXPECT_TRUE(nan_shown(program));
}

TEST(ToyFaults, AMissingAfter) {
  for (const std::size_t step : {std::size_t{5}, std::size_t{9}}) {
    ToyProgram program = round_trip();
    const ToyResult reference = toy_reference(program);
    program.steps[step].after.clear();
    EXPECT_TRUE(shown(program, reference)) << step;
    EXPECT_TRUE(nan_shown(program)) << step;
  }
}

TEST(ToyFaults, AReadOfWhatNobodyWrote) {
  EXPECT_TRUE(nan_shown(without(round_trip(), 3)));
}

// Every wait and every entry of an `after` list that is left out, every free one wait earlier.
// Steps were written with what they need and no more; still, some faults change nothing that is
// left at the end.
TEST(ToyFaults, InRandomPrograms) {
  struct Count {
    int shown = 0;
    int all = 0;
  };
  Count waits;
  Count afters;
  Count frees;
  const auto count = [](Count& into, const ToyProgram& program, const ToyResult& reference) {
    into.shown += shown(program, reference);
    ++into.all;
  };
  for (std::uint64_t number = 100; number < 104; ++number) {
    const ToyProgram program = make_toy_program(number, 60);
    const ToyResult reference = toy_reference(program);
    for (std::size_t step = 0; step < program.steps.size(); ++step) {
      const ToyStep& at = program.steps[step];
      if (at.operation == ToyOperation::Wait) count(waits, without(program, step), reference);
      for (std::size_t entry = 0; entry < at.after.size(); ++entry) {
        ToyProgram damaged = program;
        std::vector<int>& after = damaged.steps[step].after;
        after.erase(after.begin() + static_cast<std::ptrdiff_t>(entry));
        count(afters, damaged, reference);
      }
      if (at.operation == ToyOperation::Free &&
          program.steps[step - 1].operation == ToyOperation::Wait) {
        ToyProgram damaged = program;
        std::swap(damaged.steps[step], damaged.steps[step - 1]);
        count(frees, damaged, reference);
      }
    }
  }
  std::printf("shown: %d of %d waits, %d of %d entries of after, %d of %d frees\n", waits.shown,
              waits.all, afters.shown, afters.all, frees.shown, frees.all);
  EXPECT_GE(waits.all, 20);
  EXPECT_GE(5 * waits.shown, 3 * waits.all);
  EXPECT_GE(afters.all, 15);
  EXPECT_GE(5 * afters.shown, 3 * afters.all);
  EXPECT_GE(frees.all, 5);
  EXPECT_GE(4 * frees.shown, frees.all);
}

#endif

}  // namespace
}  // namespace garonne::device
