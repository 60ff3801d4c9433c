// Copies between memory of the device and of the host by who does work on a lane that is a thread,
// as what brings memory that the host does not reach to a file, piece by piece.
#pragma once

#include "device/device.hpp"

namespace garonne::device {

// For one thread at a time.
class ThreadCopies {
 public:
  virtual ~ThreadCopies() = default;
  ThreadCopies(const ThreadCopies&) = delete;
  ThreadCopies& operator=(const ThreadCopies&) = delete;

  // From Device to Host or back, of equal sizes, while the thread goes on. Memory of the host is of
  // the device's host tier. Both are there, and not touched, until it is finished.
  virtual void begin(Span to, Span from) = 0;
  // Holds the thread until all that was begun is done. LaneError where the device is over before.
  virtual void finish() = 0;

 protected:
  ThreadCopies() = default;
};

}  // namespace garonne::device
