#include "plan/graph/byte_changes.hpp"

#include <algorithm>

#include "base/index.hpp"

namespace garonne::plan {
namespace {

std::int64_t over(std::int64_t bytes, std::int64_t budget_bytes) {
  return bytes > budget_bytes ? bytes - budget_bytes : 0;
}

}  // namespace

void StepBytes::assign(const std::vector<std::int64_t>& during) {
  during_ = &during;
  blocks_.clear();
  for (std::size_t begin = 0; begin < during.size(); begin += block_steps) {
    const auto from = during.begin() + static_cast<std::ptrdiff_t>(begin);
    const std::size_t steps = std::min<std::size_t>(block_steps, during.size() - begin);
    const auto [least, most] = std::minmax_element(from, from + static_cast<std::ptrdiff_t>(steps));
    blocks_.push_back({*least, *most});
  }
}

std::int64_t StepBytes::excess_of(int begin, int end, std::int64_t added,
                                  std::int64_t budget_bytes) const {
  std::int64_t sum = 0;
  for (int i = begin; i < end;) {
    if (i % block_steps == 0 && i + block_steps <= end) {
      const Block& block = blocks_[as_index(i / block_steps)];
      const bool within = block.most + std::max<std::int64_t>(added, 0) <= budget_bytes;
      const bool beyond = block.least + std::min<std::int64_t>(added, 0) >= budget_bytes;
      if (within || beyond) {
        sum += beyond ? added * block_steps : 0;
        i += block_steps;
        continue;
      }
    }
    const std::int64_t bytes = (*during_)[as_index(i++)];
    sum += over(bytes + added, budget_bytes) - over(bytes, budget_bytes);
  }
  return sum;
}

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

std::int64_t ByteChanges::excess(const StepBytes& steps, std::int64_t budget_bytes, int until) {
  std::int64_t sum = 0;
  for_each_stretch(until, [&](int begin, int end, std::int64_t added) {
    if (added != 0) sum += steps.excess_of(begin, end, added, budget_bytes);
    return true;
  });
  return sum;
}

bool ByteChanges::fit(const std::vector<std::int64_t>& during, std::int64_t budget_bytes,
                      int until) {
  bool fits = true;
  for_each_stretch(until, [&](int begin, int end, std::int64_t added) {
    if (added <= 0) return true;
    for (int i = begin; i < end; ++i) fits = fits && during[as_index(i)] + added <= budget_bytes;
    return fits;
  });
  return fits;
}

}  // namespace garonne::plan
