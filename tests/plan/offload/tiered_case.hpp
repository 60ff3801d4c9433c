// A step of a small model, by seed, whose buffers may be below the device.
#pragma once

#include <utility>
#include <vector>

#include "plan/step/graphs.hpp"

namespace garonne::plan::test {

// Of a tier below the device: seconds and bytes per second on the way out, and in.
inline const TierLinks tier_links = {{1e-6, 1e9}, {2e-6, 2e9}};

constexpr std::int64_t plenty = std::int64_t{1} << 40;  // bytes that limit nothing

struct TieredCase {
  ModelGraph graph;
  StepShape step;
  Program program;
};

// Of one data rank, or two under ZeRO; `tier` allocates pages of 4 KiB.
inline TieredCase tiered_case(unsigned seed, Tier tier, int zero = 0,
                              std::vector<TensorSums> tensor_sums = {}) {
  TieredCase made;
  made.graph = seed % 3 == 0 ? chain(4, 2) : random_graph(seed);
  const int micro_batches = 1 + static_cast<int>(seed % 3);
  made.step = step_shape(micro_batches, zero > 0 ? 2 : 1, seed % 4 == 0 ? 0 : 1000 * (seed % 4));
  made.step.zero = zero;
  made.step.tensor_sums = std::move(tensor_sums);
  made.step.gathers_ahead = static_cast<int>(seed % 2);
  if (seed % 2 == 1) made.step.element_bytes = {2, 4, 4, 4};
  const auto all = policy_schedules(made.graph);
  made.program = make_training_program(made.graph, made.step,
                                       same_for_all(all[seed % all.size()].second, micro_batches));
  made.program.tier(tier).granularity = 4096;
  return made;
}

}  // namespace garonne::plan::test
