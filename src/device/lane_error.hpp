// The error of work that was put on a lane: it is thrown where somebody waits, far from where the
// work was put, so it says what the work was.
#pragma once

#include <exception>
#include <functional>
#include <string>

#include "base/device.hpp"
#include "base/error.hpp"

namespace garonne::device {

// "copy-out lane, value 3 of micro-batch 1: REASON", with the exit code of what was thrown.
class LaneError : public Error {
 public:
  LaneError(Lane lane, const std::string& activity, ExitCode code, const std::string& reason);

  Lane lane() const { return lane_; }
  const std::string& activity() const { return activity_; }

 private:
  Lane lane_;
  std::string activity_;
};

// Carries out work of a lane where it stands. Throws an Error as it is, and what is none, as what
// libraries throw, as a LaneError of one line with ExitCode::Refused.
void run_named(Lane lane, const std::string& activity, const std::function<void()>& work);

// Carries out work of a lane: null, or what it threw as a LaneError. What is no Error has one line.
std::exception_ptr failure_of(Lane lane, const std::string& activity,
                              const std::function<void()>& work);

}  // namespace garonne::device
