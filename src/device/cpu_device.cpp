#include "device/cpu_device.hpp"

#include <unistd.h>

#include <cstdint>

namespace garonne::device {

CpuDevice::CpuDevice(int threads, double longest_wait_seconds)
    : ThreadedDevice({.threads = threads, .longest_wait_seconds = longest_wait_seconds}) {}

MemoryFacts CpuDevice::memory() const {
  const std::int64_t page = sysconf(_SC_PAGESIZE);
  return {page * sysconf(_SC_PHYS_PAGES), page * sysconf(_SC_AVPHYS_PAGES)};
}

}  // namespace garonne::device
