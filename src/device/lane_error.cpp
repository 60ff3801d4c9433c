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

namespace {

// Libraries put stacks of addresses on further lines.
std::string first_line(const std::exception& error) {
  const std::string reason = error.what();
  return reason.substr(0, reason.find('\n'));
}

}  // namespace

void run_named(Lane lane, const std::string& activity, const std::function<void()>& work) {
  try {
    work();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw LaneError(lane, activity, ExitCode::Refused, first_line(error));
  }
}

std::exception_ptr failure_of(Lane lane, const std::string& activity,
                              const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return std::make_exception_ptr(LaneError(lane, activity, error.code(), error.what()));
  } catch (const std::exception& error) {
    return std::make_exception_ptr(LaneError(lane, activity, ExitCode::Other, first_line(error)));
  }
  return nullptr;
}

}  // namespace garonne::device
