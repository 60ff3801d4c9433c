// What the passes of blocks take of a device and of the host that issues them.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/grid/block_table.hpp"
#include "plan/step/generator.hpp"

namespace garonne::plan {

struct PassSeconds {
  double device = 0;  // collectives over the tensor group included
  double host = 0;    // to issue it; 0 where the host computes
};

// Of a micro-batch.
PassSeconds forward_pass(const BlockCost& block, const KernelSeconds& kernels);
// Weights' gradients included.
PassSeconds backward_pass(const BlockCost& block, const KernelSeconds& kernels);

// From the first issue to the end of the last pass, for so many micro-batches that pass a device
// one after the other. The host issues passes without waiting for any; none ends before that.
double seconds_in_turn(const std::vector<PassSeconds>& micro_batch, std::int64_t micro_batches);

}  // namespace garonne::plan
