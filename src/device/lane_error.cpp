#include "device/lane_error.hpp"

#include <fmt/format.h>

#include "base/printable.hpp"

namespace garonne::device {

LaneError::LaneError(Lane lane, const std::string& activity, ExitCode code,
                     const std::string& reason)
    : Error(code,
            printable_message(fmt::format("{} lane, {}: {}", to_string(lane), activity, reason))),
      lane_(lane),
      activity_(activity) {}

std::exception_ptr failure_of(Lane lane, const std::string& activity,
                              const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return std::make_exception_ptr(LaneError(lane, activity, error.code(), error.what()));
  } catch (const std::exception& error) {
    // Libraries put stacks of addresses on further lines.
    const std::string reason = error.what();
    return std::make_exception_ptr(
        LaneError(lane, activity, ExitCode::Other, reason.substr(0, reason.find('\n'))));
  }
  return nullptr;
}

}  // namespace garonne::device
