// Where a kernel is computed: by the host's loops, or on the device of its queue; private to this
// room.
#pragma once

#include "base/device.hpp"
#include "base/error.hpp"
#include "kernels/device/streams.hpp"

#include <source_location>
#include <string>

namespace garonne::kernels {

// Throws InternalError that names the kernel and the queue.
[[noreturn]] inline void refuse(const Queue& queue, std::source_location where) {
  throw InternalError(std::string(where.function_name()) + " has no form for a queue of " +
                          std::string(to_string(queue.device)) +
                          (queue.native == nullptr ? "" : " with a stream of its own"),
                      where);
}

// Calls put(place) where `queue` is CUDA's, and says so; false where the host is to compute.
// InternalError that names the calling kernel for a queue that nothing here can serve: there is no
// falling back to another device's memory.
template <typename Put>
bool put_on_device(const Queue& queue, [[maybe_unused]] const Put& put,
                   std::source_location where = std::source_location::current()) {
  if (queue.device != DeviceKind::Cuda && queue.native == nullptr) return false;
#ifdef GARONNE_WITH_CUDA
  if (queue.device == DeviceKind::Cuda) {
    put(device::place_of(queue.native, where));
    return true;
  }
#endif
  refuse(queue, where);
}

// For kernels that only the host has.
inline void expect_host(const Queue& queue,
                        std::source_location where = std::source_location::current()) {
  if (queue.device != DeviceKind::Cuda && queue.native == nullptr) return;
  refuse(queue, where);
}

}  // namespace garonne::kernels
