// Kernels of the host refuse queues of other devices; private to this room.
#pragma once

#include "base/device.hpp"
#include "base/error.hpp"

#include <source_location>
#include <string>

namespace garonne::kernels {

// Throws InternalError that names the calling kernel unless the host computes what is put into
// `queue`: another device's memory is not the host's to read.
inline void expect_host(const Queue& queue,
                        std::source_location where = std::source_location::current()) {
  if (queue.device != DeviceKind::Cuda && queue.native == nullptr) return;
  throw InternalError(std::string(where.function_name()) + " has no form for a queue of " +
                          std::string(to_string(queue.device)) +
                          (queue.native == nullptr ? "" : " with a stream of its own"),
                      where);
}

}  // namespace garonne::kernels
