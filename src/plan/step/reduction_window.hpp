// Which reductions of a rank are under way, what they hold until they are waited for, and whether
// there is room for one more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

namespace garonne::plan {

// Collectives beside compute, named by their instructions, in the order in which they were issued.
class ReductionWindow {
 public:
  // Bytes, as StepShape::reduction_bytes says them: by buckets that are complete.
  explicit ReductionWindow(std::vector<std::int64_t> limits);

  // The limit is that of one more bucket.
  void completed_bucket() { ++completed_buckets_; }

  bool empty() const { return in_flight_.empty(); }
  // Whether one that holds so many bytes may be under way beside those that are; alone any may.
  bool has_room(std::int64_t bytes) const;
  // InternalError where there is no room, and for an instruction that is not behind the newest.
  void submitted(int instruction, std::int64_t bytes);
  // InternalError where none is under way.
  int oldest() const;
  int newest() const;
  // It holds nothing any more. InternalError for one that is not under way.
  void waited(int instruction);

  // Between the two calls nothing should be waited for to make room.
  void hold_waits() { waits_held_ = true; }
  void allow_waits() { waits_held_ = false; }
  bool waits_held() const { return waits_held_; }

 private:
  struct InFlight {
    int instruction = 0;
    std::int64_t bytes = 0;
  };

  std::vector<std::int64_t> limits_;
  std::size_t completed_buckets_ = 0;
  std::deque<InFlight> in_flight_;
  std::int64_t bytes_ = 0;  // that they hold
  bool waits_held_ = false;
};

}  // namespace garonne::plan
