// Times between two uses in a sequence of a chain, in which something may be on the tier below.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/chain/chain.hpp"

namespace garonne::plan {

// In places of the list; -1 is the start, the number of operations the end.
struct ChainGap {
  ChainItem item = ChainItem::Value;
  int index = 0;
  std::int64_t bytes = 0;
  int made_at = -1;
  int last_use = -1;
  int next_use = -1;   // after the end: the first use of the next step, so many places later
  bool clean = false;  // a copy is below from the start
  bool again = false;  // not the first of what was made at made_at

  bool crosses_end(int operations) const { return next_use >= operations; }
};

// Those of a legal sequence without copies that something lies in, by made_at.
std::vector<ChainGap> chain_gaps(const Chain& chain, const std::vector<ChainOperation>& operations);

// What is live during each operation where all of `gaps` is away.
class GapBytes {
 public:
  GapBytes(const Chain& chain, const std::vector<ChainOperation>& operations);

  int operations() const { return static_cast<int>(during_.size()); }
  std::int64_t during(int place) const { return during_[static_cast<std::size_t>(place)]; }
  std::int64_t peak() const;
  void take(const ChainGap& gap) { add(gap, -gap.bytes); }
  void give_back(const ChainGap& gap) { add(gap, gap.bytes); }
  // During [from, to).
  void add(int from, int to, std::int64_t bytes);

  // visit(from, to) for the parts of the list that the gap has, as [from, to).
  template <typename Visit>
  void for_parts(const ChainGap& gap, const Visit& visit) const {
    if (!gap.crosses_end(operations())) {
      visit(gap.last_use + 1, gap.next_use);
      return;
    }
    visit(0, gap.next_use - operations());
    visit(gap.last_use + 1, operations());
  }

 private:
  void add(const ChainGap& gap, std::int64_t bytes) {
    for_parts(gap, [&](int from, int to) { add(from, to, bytes); });
  }

  std::vector<std::int64_t> during_;
};

}  // namespace garonne::plan
