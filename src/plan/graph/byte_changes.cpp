#include "plan/graph/byte_changes.hpp"

#include <algorithm>

namespace garonne::plan {
namespace {

std::int64_t over(std::int64_t bytes, std::int64_t budget_bytes) {
  return bytes > budget_bytes ? bytes - budget_bytes : 0;
}

}  // namespace

template <typename Visit>
void ByteChanges::for_each_stretch(int until, Visit visit) {
  std::sort(changes_.begin(), changes_.end(),
            [](const Change& a, const Change& b) { return a.from < b.from; });
  std::int64_t added = 0;
  for (std::size_t c = 0; c < changes_.size(); ++c) {
    added += changes_[c].bytes;
    const int end = c + 1 < changes_.size() ? std::min(changes_[c + 1].from, until + 1) : until + 1;
    if (!visit(changes_[c].from, end, added)) return;
  }
}

std::int64_t ByteChanges::excess(const std::vector<std::int64_t>& during, std::int64_t budget_bytes,
                                 int until) {
  std::int64_t sum = 0;
  for_each_stretch(until, [&](int begin, int end, std::int64_t added) {
    if (added == 0) return true;
    for (int i = begin; i < end; ++i) {
      const std::int64_t bytes = during[static_cast<std::size_t>(i)];
      sum += over(bytes + added, budget_bytes) - over(bytes, budget_bytes);
    }
    return true;
  });
  return sum;
}

bool ByteChanges::fit(const std::vector<std::int64_t>& during, std::int64_t budget_bytes,
                      int until) {
  bool fits = true;
  for_each_stretch(until, [&](int begin, int end, std::int64_t added) {
    if (added <= 0) return true;
    for (int i = begin; i < end; ++i)
      fits = fits && during[static_cast<std::size_t>(i)] + added <= budget_bytes;
    return fits;
  });
  return fits;
}

}  // namespace garonne::plan
