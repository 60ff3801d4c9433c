#include "plan/grid/block_passes.hpp"

#include <algorithm>

#include "base/error.hpp"

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

void PassClock::run(const PassSeconds& pass) {
  issued_ += pass.host;
  now_ = std::max(now_ + pass.device, issued_);
}

void PassClock::start_with(const std::vector<PassSeconds>& micro_batch, std::int64_t micro_batches,
                           bool host_waits) {
  expect(issued_ == 0 && now_ == 0 && micro_batches > 0, "a step starts with its micro-batches");
  double computed = 0;
  for (const PassSeconds& pass : micro_batch) {
    run(pass);
    computed += pass.device;
  }
  // The last pass that waits for the host is in the first micro-batch or in the last one: between
  // them all take as long as the slower of the two does.
  const auto further = static_cast<double>(micro_batches - 1);
  if (host_waits) {
    issued_ += further * now_;
    now_ += further * now_;
    return;
  }
  now_ += further * std::max(issued_, computed);
  issued_ += further * issued_;
}

}  // namespace garonne::plan
