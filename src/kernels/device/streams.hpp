// The streams of CUDA that have a StreamSession; private to this room, and without Kokkos.
#pragma once

#include "kernels/device/place.hpp"

#include <source_location>

namespace garonne::kernels::device {

// Starts Kokkos on the current device where it has not been, and makes the place of `stream`.
void begin_stream(void* stream);
void end_stream(void* stream);
// Stops Kokkos where it was started. No stream has a session any more.
void end_streams();

// InternalError that names the kernel `where` for a stream without a session.
Place place_of(void* stream, std::source_location where);

}  // namespace garonne::kernels::device
