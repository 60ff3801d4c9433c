#include "plan/grid/block_passes.hpp"

#include <algorithm>

namespace garonne::plan {

PassSeconds forward_pass(const BlockCost& block, const KernelSeconds& kernels) {
  return {block.forward_seconds + block.forward_link_seconds +
              block.forward_link_kernels * kernels.least,
          block.forward_issue_seconds + block.forward_link_launches * kernels.issue};
}

PassSeconds backward_pass(const BlockCost& block, const KernelSeconds& kernels) {
  return {block.backward_seconds + block.backward_link_seconds + block.weight_seconds +
              block.backward_link_kernels * kernels.least,
          block.backward_issue_seconds + block.backward_link_launches * kernels.issue};
}

double seconds_in_turn(const std::vector<PassSeconds>& micro_batch, std::int64_t micro_batches) {
  double issued = 0;
  double computed = 0;
  double now = 0;
  for (const PassSeconds& pass : micro_batch) {
    issued += pass.host;
    computed += pass.device;
    now = std::max(now + pass.device, issued);
  }
  // The last pass that waits for the host is in the first micro-batch or in the last one: between
  // them all take as long as the slower of the two does.
  return now + static_cast<double>(std::max<std::int64_t>(0, micro_batches - 1)) *
                   std::max(issued, computed);
}

}  // namespace garonne::plan
