// Copies of a GPU by threads of its lanes: on a stream that each of them has for itself.
#pragma once

#include <cstdint>
#include <functional>

#include "device/cuda_lane.hpp"
#include "device/thread_copies.hpp"

namespace garonne::device {

class CudaThreadCopies final : public ThreadCopies {
 public:
  // Whether memory of the host is the device's.
  using IsPinned = std::function<bool(Span)>;

  // Makes the stream. What is handed in outlives the copies. LaneError where the runtime refuses.
  CudaThreadCopies(const CudaCheck& check, LaneClock& clock, CudaEvents& events, int ordinal,
                   Lane lane, int priority, IsPinned is_pinned);

  void begin(Span to, Span from) override;
  void finish() override;

  // For the end of the device, when the thread has ended.
  CudaLane& stream() { return stream_; }

 private:
  const CudaCheck& check_;
  LaneClock& clock_;
  const int ordinal_;
  const Lane lane_;
  const IsPinned is_pinned_;
  CudaLane stream_;
  std::uint64_t begun_ = 0;
};

}  // namespace garonne::device
