// What is free of some address space. It never looks at what the addresses name, which may be
// memory that the host cannot touch.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>

namespace garonne::device {

// Best fit with coalescing. Not safe for several threads at once.
class FreeRanges {
 public:
  using Range = std::pair<std::int64_t, char*>;  // bytes, begin

  // The beginning of the shortest range that is long enough, the lowest of several; null where none
  // is.
  char* take(std::int64_t bytes);
  // Joined with the free ranges beside it that are between `low` and `high`.
  void give(char* begin, std::int64_t bytes, const char* low, const char* high);

  // Ascending.
  const std::set<Range>& by_size() const { return by_size_; }
  std::int64_t longest() const { return by_size_.empty() ? 0 : by_size_.rbegin()->first; }

 private:
  void insert(char* begin, std::int64_t bytes);
  void erase(char* begin, std::int64_t bytes);

  std::map<char*, std::int64_t> by_begin_;
  std::set<Range> by_size_;
};

}  // namespace garonne::device
