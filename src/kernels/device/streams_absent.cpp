// Streams in builds without CUDA.
#include "base/error.hpp"
#include "kernels/device/streams.hpp"

namespace garonne::kernels::device {

void begin_stream(void*) {
  throw NotBuiltError("CUDA", "build with GARONNE_WITH_CUDA to put kernels into its streams");
}

void end_stream(void*) {}

void end_streams() {}

}  // namespace garonne::kernels::device
