// Work that is put on a GPU once and carried out many times: what CUDA calls graphs.
#pragma once

#include <functional>
#include <string>

#include "device/device.hpp"

namespace garonne::device {

// For the thread that puts work on the lanes of a device that has this.
class Captures {
 public:
  virtual ~Captures() = default;
  Captures(const Captures&) = delete;
  Captures& operator=(const Captures&) = delete;

  // Waits for all that is under way. What is put on Compute from then on, and on streams that fork
  // from it, is not carried out: it becomes a graph. Until the end of the capture nothing waits for
  // what it puts, asks how far that is or takes times, only streams are given work, and copies and
  // kernels have the addresses that they will have each time. What breaks that, and what the
  // runtime refuses, is thrown and ends the capture's use, not the device: drop_capture.
  virtual void begin_capture(const std::string& activity) = 0;
  // Streams join Compute. The number of the graph; marks of the capture count as reached.
  virtual int end_capture(const std::string& activity) = 0;
  // Of a capture that went wrong: nothing of it was carried out, nothing is left.
  virtual void drop_capture() noexcept = 0;

  // Carries out all of a graph in the order of Compute. The mark after it.
  virtual Mark launch(int graph, const std::string& activity) = 0;
  // Nothing of it is under way. A device that ends drops all graphs: what is none any more is left
  // alone.
  virtual void drop(int graph) noexcept = 0;

  // Calls `kernels`, which puts kernels on Compute. Where these are the host's, as in tests, a
  // capture has them run with each launch, as often as that comes to it.
  virtual void put_kernels(const std::function<void()>& kernels) = 0;

 protected:
  Captures() = default;
};

}  // namespace garonne::device
