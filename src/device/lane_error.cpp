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

}  // namespace garonne::device
