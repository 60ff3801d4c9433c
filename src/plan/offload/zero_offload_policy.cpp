#include "plan/offload/mover.hpp"
#include "plan/offload/offload_policy.hpp"

namespace garonne::plan {

// Ren, Rajbhandari, Aminabadi, Ruwase, Yang, Zhang, Li, He: ZeRO-Offload (2021): what passes read
// and leave stays on the device, what only the optimizer uses is on the host, which updates it. Its
// delay of updates by a step is another training, and is not taken over.
OffloadPolicy zero_offload_policy() {
  OffloadPolicy policy;
  policy.name = "zero-offload";
  policy.help =
      "keep what passes read and leave; masters and states of the optimizer are on the host, where "
      "gradients go to be updated";
  policy.schedule = "keep-all";
  policy.ways = {MemoryWay::OffloadGradients, MemoryWay::OffloadStates};
  policy.on_host = true;
  policy.place = [](const Mover& mover) { return mover.with_all_updates_on_host(); };
  return policy;
}

}  // namespace garonne::plan
