#include "device/tier_places.hpp"

#include "device/tier_memory.hpp"

namespace garonne::device {

std::unique_ptr<FixedArena> tier_places(std::int64_t limit_bytes, void* begin) {
  // Addresses cost nothing.
  constexpr std::int64_t generous = 4;
  // No address of a block is null.
  if (begin == nullptr) begin = reinterpret_cast<void*>(host_allocation_granularity);
  return std::make_unique<FixedArena>(begin, generous * limit_bytes);
}

}  // namespace garonne::device
