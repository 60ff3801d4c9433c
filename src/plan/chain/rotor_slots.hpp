// The recursion of RotorModel with memory cut into slots: sizes are rounded up to whole slots, the
// budget down, so that what is answered always fits. O(S·(L³ + L²K)) time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "plan/chain/rotor_minimum.hpp"
#include "plan/chain/rotor_model.hpp"
#include "plan/chain/rotor_values.hpp"

namespace garonne::plan {

class RotorSlots : public RotorValues {
 public:
  // Answers up to `most_bytes` for the whole chain, in slots of `slot_bytes`.
  RotorSlots(const RotorModel& model, std::int64_t most_bytes, std::int64_t slot_bytes);

  double excess(int first, int last, std::int64_t bytes) const override;
  std::int64_t slots() const { return slots_; }
  std::size_t memory_bytes() const { return allocated_ * sizeof(float); }

 private:
  // An interval's seconds by slots: none below `begin`, cells in [begin, end), then the last cell.
  struct Row {
    std::int64_t begin = 0;
    std::int64_t end = 0;
    float* cells = nullptr;  // that of slot `begin` first
    float at(std::int64_t slot) const { return cells[slot - begin]; }
  };
  // One way to start an interval: constant + one(m - one_shift) + two(m - two_shift) from `begin`
  // on, where either row may be absent.
  struct Candidate {
    float constant;
    const Row* one;
    const Row* two;
    std::int64_t one_shift;
    std::int64_t two_shift;
    std::int64_t begin;
    std::int64_t one_last = 0;  // where row one has its last cell, shifted
    std::int64_t two_last = 0;
    float least = 0;  // value where both have
    std::int64_t reaches_least() const { return std::max({begin, one_last, two_last}); }
    float at(std::int64_t slot) const {
      if (slot < begin) return std::numeric_limits<float>::infinity();
      float sum = constant;
      if (one != nullptr) sum += one->at(std::min(slot, one_last) - one_shift);
      if (two != nullptr) sum += two->at(std::min(slot, two_last) - two_shift);
      return sum;
    }
  };
  void offer(Candidate candidate);
  void write_row(Row& row);
  static void write_part(const Row& row, const Candidate& candidate, std::int64_t slot,
                         std::int64_t end);
  std::int64_t round_up(std::int64_t bytes) const;
  float* allocate(std::size_t count);

  IntervalIndex index_;
  std::int64_t slot_bytes_;
  std::int64_t slots_;
  std::vector<Row> rows_;
  // Cells in chunks: rows do not move when there are more of them.
  std::vector<std::unique_ptr<float[]>> chunks_;
  float* next_cell_ = nullptr;
  std::size_t left_in_chunk_ = 0;
  std::size_t allocated_ = 0;
  std::vector<Candidate> candidates_;
  std::vector<float> lowest_;
};

// Cells that a table takes at most; `least_bytes` are the exact minima of the intervals.
std::int64_t count_cells(const RotorModel& model, const RotorMinimum& minimum,
                         std::int64_t most_bytes, std::int64_t slot_bytes);

// How far rounding can move the answer at `most_bytes`: it is at least as fast as the best of exact
// sizes at a budget that is so many bytes smaller.
std::int64_t rounding_loss(const RotorModel& model, std::int64_t slot_bytes);

}  // namespace garonne::plan
