#include "device/fixed_arena.hpp"

#include <algorithm>
#include <functional>

namespace garonne::device {

FixedArena::FixedArena(void* begin, std::int64_t bytes)
    : begin_(static_cast<char*>(begin)), bytes_(bytes) {
  if (bytes > 0) free_.give(begin_, bytes, begin_, begin_ + bytes);
}

std::unique_ptr<FixedArena> FixedArena::copy() const {
  auto copied = std::make_unique<FixedArena>(begin_, bytes_);
  copied->reach_bytes_ = reach_bytes_;
  copied->free_ = free_;
  return copied;
}

void* FixedArena::allocate(std::int64_t bytes) {
  char* block = free_.take(bytes);
  if (block != nullptr) reach_bytes_ = std::max(reach_bytes_, block - begin_ + bytes);
  return block;
}

void FixedArena::release(void* block, std::int64_t bytes) {
  free_.give(static_cast<char*>(block), bytes, begin_, begin_ + bytes_);
}

bool FixedArena::contains(const void* data, std::int64_t bytes) const {
  const auto* at = static_cast<const char*>(data);
  const std::less_equal<const char*> no_later;  // of different blocks, too
  return no_later(begin_, at) && no_later(at, begin_ + bytes_) && bytes <= begin_ + bytes_ - at;
}

}  // namespace garonne::device
