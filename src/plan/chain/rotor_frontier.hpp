// The recursion of RotorModel exact in bytes: for every interval the list of (bytes, seconds) that
// no other dominates. Short lists make it the cheapest table; long ones make it hopeless, so that
// it stops at a count of steps.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "plan/chain/rotor_model.hpp"
#include "plan/chain/rotor_values.hpp"

namespace garonne::plan {

class RotorFrontier : public RotorValues {
 public:
  // Answers up to `most_bytes` for the whole chain. None if it would take more than `most_steps`
  // merged points, or keep more than `most_points`.
  static std::optional<RotorFrontier> make(const RotorModel& model, std::int64_t most_bytes,
                                           std::int64_t most_steps, std::int64_t most_points);

  double excess(int first, int last, std::int64_t bytes) const override;
  std::size_t memory_bytes() const { return points_ * sizeof(Point); }

 private:
  struct Point {
    std::int64_t bytes;
    double excess;
  };
  using Points = std::vector<Point>;
  explicit RotorFrontier(int blocks) : index_(blocks), lists_(index_.size()) {}
  static void offer(Points& list, const Point& point);
  static void take_lower(Points& list, const Points& other, Points& scratch);

  IntervalIndex index_;
  std::vector<Points> lists_;
  std::size_t points_ = 0;
};

}  // namespace garonne::plan
