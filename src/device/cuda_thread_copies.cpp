#include "device/cuda_thread_copies.hpp"

#include <fmt/format.h>

#include <utility>

#include "base/error.hpp"
#include "device/cuda_pause.hpp"
#include "device/lane_error.hpp"

namespace garonne::device {
namespace {

constexpr const char* activity = "a piece of a copy";

}  // namespace

CudaThreadCopies::CudaThreadCopies(const CudaCheck& check, LaneClock& clock, CudaEvents& events,
                                   int ordinal, Lane lane, int priority, IsPinned is_pinned)
    : check_(check),
      clock_(clock),
      ordinal_(ordinal),
      lane_(lane),
      is_pinned_(std::move(is_pinned)),
      stream_(check, events, events, lane, priority) {}

void CudaThreadCopies::begin(Span to, Span from) {
  const bool out = to.tier == Tier::Host && from.tier == Tier::Device;
  expect(out || (to.tier == Tier::Device && from.tier == Tier::Host),
         fmt::format("a piece is copied from {} to {}", to_string(from.tier), to_string(to.tier)));
  expect(
      to.bytes == from.bytes && is_pinned_(out ? to : from),
      fmt::format("a piece of {} bytes for {} bytes, or of memory of the host that is not pinned",
                  from.bytes, to.bytes));
  check_(check_.runtime().set_device(ordinal_), "cudaSetDevice", lane_, activity);
  check_(check_.runtime().copy(to.data, from.data, static_cast<std::size_t>(to.bytes),
                               out ? CudaCopy::DeviceToHost : CudaCopy::HostToDevice,
                               stream_.stream()),
         "cudaMemcpyAsync", lane_, activity);
  stream_.record(++begun_, activity);
}

void CudaThreadCopies::finish() {
  for (int turn = 0; !stream_.reached(begun_); ++turn) {
    if (clock_.over())
      throw LaneError(lane_, activity, ExitCode::Refused, "the device is over before it is done");
    pause_polling(turn);
  }
}

}  // namespace garonne::device
