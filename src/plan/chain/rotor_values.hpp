// What a table of the recursion of RotorModel answers, however it is stored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

namespace garonne::plan {

inline constexpr double no_answer = std::numeric_limits<double>::infinity();

class RotorValues {
 public:
  virtual ~RotorValues() = default;
  // Seconds above the least possible of interval [first, last] within `bytes`, or no_answer. Some
  // sequence has this time; a table with rounded sizes may miss a faster one.
  virtual double excess(int first, int last, std::int64_t bytes) const = 0;
};

// Intervals in the order of a triangle: (0,0), (0,1), …, (0,n-1), (1,1), …
class IntervalIndex {
 public:
  explicit IntervalIndex(int blocks) : blocks_(static_cast<std::size_t>(blocks)) {}
  std::size_t size() const { return blocks_ * (blocks_ + 1) / 2; }
  std::size_t operator()(int first, int last) const {
    const auto row = static_cast<std::size_t>(first);
    return row * blocks_ - row * (row + 1) / 2 + static_cast<std::size_t>(last);
  }

 private:
  std::size_t blocks_;
};

}  // namespace garonne::plan
