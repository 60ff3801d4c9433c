#include "device/finishing_blocks.hpp"

#include <algorithm>
#include <optional>

namespace garonne::device {

// What is finishing ends by itself, so it may be waited for.
Span FinishingBlocks::allocate(std::int64_t bytes, const std::string& activity) {
  release_complete();
  while (!finishing_.empty()) {
    if (const std::optional<Span> block = memory_.try_allocate(bytes, activity)) return *block;
    release_oldest();
  }
  return memory_.allocate(bytes, activity);
}

std::uint64_t FinishingBlocks::release_after(Span block, Mark last) {
  finishing_.push_back({++last_number_, block, last});
  return last_number_;
}

bool FinishingBlocks::holds(std::uint64_t number) const {
  return std::ranges::find(finishing_, number, &Finishing::number) != finishing_.end();
}

// Not only the oldest ones: they are of several lanes.
void FinishingBlocks::release_complete() {
  std::erase_if(finishing_, [&](const Finishing& each) {
    if (!device_.done(each.last)) return false;
    memory_.release(each.block);
    return true;
  });
}

void FinishingBlocks::release_all() {
  while (!finishing_.empty()) release_oldest();
}

void FinishingBlocks::release_oldest() {
  device_.wait(finishing_.front().last);
  memory_.release(finishing_.front().block);
  finishing_.pop_front();
}

}  // namespace garonne::device
