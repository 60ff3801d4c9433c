// How fast a disk is while the process computes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace garonne::device {

// Bytes a second, both directions at once.
struct DiskSpeed {
  double latency_seconds = 0;  // of a small access
  double write = 0;
  double read = 0;
  bool direct = false;  // past the page cache
};

// Writes and reads a file of `bytes` in the folder for so many seconds, on a thread each, while the
// calling thread does `beside` again and again. Nothing stays. Throws as DiskFile does.
DiskSpeed probe_disk(const std::string& folder, std::int64_t bytes, double seconds,
                     const std::function<void()>& beside);

}  // namespace garonne::device
