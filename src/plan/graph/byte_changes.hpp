// What a move on a schedule would change in the bytes of its steps.
#pragma once

#include <cstdint>
#include <vector>

namespace garonne::plan {

// Bytes during the steps of a schedule, with the least and the most of each block of steps: where
// all of a block are within a budget, or all over it, none of them has to be looked at.
class StepBytes {
 public:
  // `during` outlives this, or the next call.
  void assign(const std::vector<std::int64_t>& during);

  // By how much the bytes over budget grow, summed over steps [begin, end), with `added` more in
  // each.
  std::int64_t excess_of(int begin, int end, std::int64_t added, std::int64_t budget_bytes) const;

 private:
  struct Block {
    std::int64_t least = 0;
    std::int64_t most = 0;
  };
  static constexpr int block_steps = 32;

  const std::vector<std::int64_t>* during_ = nullptr;
  std::vector<Block> blocks_;
};

class ByteChanges {
 public:
  void clear() { changes_.clear(); }
  // Bytes added from a step on, up to an end that all changes of a move share.
  void add(int from, std::int64_t bytes) { changes_.push_back({from, bytes}); }

  // By how much the bytes over budget change, summed over steps up to and with `until`; `steps` are
  // the bytes of each step as they are.
  std::int64_t excess(const StepBytes& steps, std::int64_t budget_bytes, int until);
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
