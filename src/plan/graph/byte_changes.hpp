// What a move on a schedule would change in the bytes of its steps.
#pragma once

#include <cstdint>
#include <vector>

namespace garonne::plan {

class ByteChanges {
 public:
  void clear() { changes_.clear(); }
  // Bytes added from a step on, up to an end that all changes of a move share.
  void add(int from, std::int64_t bytes) { changes_.push_back({from, bytes}); }

  // By how much the bytes over budget change, summed over steps up to and with `until`; `during`
  // are the bytes of each step as they are.
  std::int64_t excess(const std::vector<std::int64_t>& during, std::int64_t budget_bytes,
                      int until);
  // Whether no step up to and with `until` to which bytes are added is over budget then.
  bool fit(const std::vector<std::int64_t>& during, std::int64_t budget_bytes, int until);

 private:
  struct Change {
    int from = 0;
    std::int64_t bytes = 0;
  };
  // Calls `visit(begin, end, bytes)` for each stretch of steps with the bytes added there, until it
  // says no.
  template <typename Visit>
  void for_each_stretch(int until, Visit visit);

  std::vector<Change> changes_;
};

}  // namespace garonne::plan
