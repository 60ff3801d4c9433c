#include "device/free_ranges.hpp"

#include <iterator>

namespace garonne::device {

char* FreeRanges::take(std::int64_t bytes) {
  const auto found = by_size_.lower_bound({bytes, nullptr});
  if (found == by_size_.end()) return nullptr;
  const auto [size, begin] = *found;
  erase(begin, size);
  if (size > bytes) insert(begin + bytes, size - bytes);
  return begin;
}

void FreeRanges::give(char* begin, std::int64_t bytes, const char* low, const char* high) {
  const auto next = by_begin_.find(begin + bytes);
  if (next != by_begin_.end() && begin + bytes < high) {
    const std::int64_t more = next->second;
    erase(begin + bytes, more);
    bytes += more;
  }
  const auto after = by_begin_.upper_bound(begin);
  if (after != by_begin_.begin() && begin > low) {
    const auto [before, size] = *std::prev(after);
    if (before + size == begin) {
      erase(before, size);
      begin = before;
      bytes += size;
    }
  }
  insert(begin, bytes);
}

void FreeRanges::insert(char* begin, std::int64_t bytes) {
  by_begin_.emplace(begin, bytes);
  by_size_.emplace(bytes, begin);
}

void FreeRanges::erase(char* begin, std::int64_t bytes) {
  by_begin_.erase(begin);
  by_size_.erase({bytes, begin});
}

}  // namespace garonne::device
