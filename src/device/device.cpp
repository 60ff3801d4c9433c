#include "device/device.hpp"

#include <fmt/format.h>

#include <cstring>
#include <functional>
#include <utility>

#include "base/error.hpp"

namespace garonne::device {
namespace {

bool goes(Lane lane, Tier to, Tier from) {
  switch (lane) {
    case Lane::Compute:
      return to == Tier::Device && from == Tier::Device;
    case Lane::CopyOut:
      return to == Tier::Host && from == Tier::Device;
    case Lane::CopyIn:
      return to == Tier::Device && from == Tier::Host;
    case Lane::HostCompute:
      return to == Tier::Host && from == Tier::Host;
    case Lane::Message:
    case Lane::Collective:
    case Lane::DiskWrite:
    case Lane::DiskRead:
      return false;
  }
  throw InternalError("no lane");
}

bool share_bytes(const Span& one, const Span& other) {
  const std::less<const std::byte*> before;  // of different blocks, too
  return before(one.data, other.data + other.bytes) && before(other.data, one.data + one.bytes);
}

}  // namespace

Mark Device::copy(Lane lane, Span to, Span from, std::string activity,
                  std::span<const Mark> after) {
  expect(goes(lane, to.tier, from.tier),
         fmt::format("{}: the {} lane does not copy from {} to {}", activity, to_string(lane),
                     to_string(from.tier), to_string(to.tier)));
  expect(to.bytes == from.bytes && to.bytes >= 0,
         fmt::format("{}: a copy of {} bytes to {} bytes", activity, from.bytes, to.bytes));
  expect(!share_bytes(to, from), fmt::format("{}: a copy from and to the same bytes", activity));
  return put_copy(lane, to, from, std::move(activity), after);
}

void Device::copy_here(Lane lane, Span to, Span from) {
  expect(
      goes(lane, to.tier, from.tier) && to.bytes == from.bytes,
      fmt::format("the {} lane does not copy {} bytes from {} to {} bytes on {}", to_string(lane),
                  from.bytes, to_string(from.tier), to.bytes, to_string(to.tier)));
  if (to.bytes > 0) std::memcpy(to.data, from.data, static_cast<std::size_t>(to.bytes));
}

ThreadCopies& Device::thread_copies(Lane lane) {
  throw InternalError(
      fmt::format("copies by a thread of the {} lane of a device whose memory the host reaches",
                  to_string(lane)));
}

Mark Device::run(Lane lane, std::function<void()> work, std::string activity,
                 std::span<const Mark> after) {
  expect(work != nullptr, fmt::format("{}: no work for the {} lane", activity, to_string(lane)));
  return put_run(lane, std::move(work), std::move(activity), after);
}

}  // namespace garonne::device
