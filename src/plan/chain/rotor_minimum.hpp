// The least memory of every interval of a chain, exact in bytes, and the time of one sequence that
// needs no more. O(L³ + L²K) time, O(L²) memory.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/chain/rotor_model.hpp"
#include "plan/chain/rotor_values.hpp"

namespace garonne::plan {

class RotorMinimum : public RotorValues {
 public:
  explicit RotorMinimum(const RotorModel& model);

  std::int64_t bytes(int first, int last) const { return bytes_[index_(first, last)]; }
  double excess(int first, int last, std::int64_t bytes) const override {
    const std::size_t interval = index_(first, last);
    return bytes >= bytes_[interval] ? excess_[interval] : no_answer;
  }

 private:
  IntervalIndex index_;
  std::vector<std::int64_t> bytes_;
  std::vector<double> excess_;
};

}  // namespace garonne::plan
