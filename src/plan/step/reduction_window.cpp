#include "plan/step/reduction_window.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"

namespace garonne::plan {

ReductionWindow::ReductionWindow(std::vector<std::int64_t> limits) : limits_(std::move(limits)) {}

bool ReductionWindow::has_room(std::int64_t bytes) const {
  const std::int64_t limit =
      limits_.empty() ? 0 : limits_[std::min(completed_buckets_, limits_.size() - 1)];
  return in_flight_.empty() || bytes_ + bytes <= limit;
}

void ReductionWindow::submitted(int instruction, std::int64_t bytes) {
  expect(has_room(bytes), "a reduction has no room beside those under way");
  expect(in_flight_.empty() || in_flight_.back().instruction < instruction,
         "reductions are submitted in the order of the instructions");
  in_flight_.push_back({instruction, bytes});
  bytes_ += bytes;
}

int ReductionWindow::oldest() const {
  expect(!in_flight_.empty(), "no reduction is under way");
  return in_flight_.front().instruction;
}

int ReductionWindow::newest() const {
  expect(!in_flight_.empty(), "no reduction is under way");
  return in_flight_.back().instruction;
}

void ReductionWindow::waited(int instruction) {
  const auto found = std::find_if(in_flight_.begin(), in_flight_.end(), [&](const InFlight& one) {
    return one.instruction == instruction;
  });
  expect(found != in_flight_.end(), "a reduction is waited for that is not under way");
  bytes_ -= found->bytes;
  in_flight_.erase(found);
}

}  // namespace garonne::plan
