// Stands in for cuda_runtime_library.cpp in builds without CUDA.
#include "base/error.hpp"
#include "device/cuda_runtime.hpp"

namespace garonne::device {

std::unique_ptr<CudaRuntime> make_cuda_runtime() {
  throw NotBuiltError("CUDA", "configure with scripts/setup --cuda, or set run.device to \"cpu\"");
}

}  // namespace garonne::device
