#include "plan/offload/mover.hpp"
#include "plan/offload/offload_policy.hpp"

namespace garonne::plan {

// Rajbhandari, Ruwase, Rasley, Smith, He: ZeRO-Infinity (2021), sections 5 and 6: parameters,
// gradients and states are below and come for their uses, ahead of them as far as there is room;
// blocks are run again from their inputs, which leave, too, where the rest is not enough.
OffloadPolicy zero_infinity_policy() {
  OffloadPolicy policy;
  policy.name = "zero-infinity";
  policy.help =
      "run blocks again; parameters, gradients, masters and states are below the device but for "
      "their uses, and inputs of blocks where the budget wants it";
  policy.schedule = "full";
  policy.ways = {MemoryWay::Recompute, MemoryWay::OffloadActivations, MemoryWay::OffloadGradients,
                 MemoryWay::OffloadWeights, MemoryWay::OffloadStates};
  policy.place = [](const Mover& mover) { return mover.with_everything_below(); };
  return policy;
}

}  // namespace garonne::plan
