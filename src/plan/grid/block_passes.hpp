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

// A device and its host, which issues passes without waiting for any; none ends before that.
class PassClock {
 public:
  void run(const PassSeconds& pass);
  // So many micro-batches that pass one after the other from the start of the clock on.
  // `host_waits`: it issues a micro-batch when the one before is through.
  void start_with(const std::vector<PassSeconds>& micro_batch, std::int64_t micro_batches,
                  bool host_waits);
  // The device does nothing for so long.
  void wait(double seconds) { now_ += seconds; }
  double now() const { return now_; }

 private:
  double issued_ = 0;
  double now_ = 0;
};

}  // namespace garonne::plan
