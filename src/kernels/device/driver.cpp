// The functions of CUDA's driver that Kokkos is linked to, asked for when they are first called: a
// program linked to the driver's library would not start on a machine without a GPU.
#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>

namespace {

// nullptr where there is no driver. Names and versions are those of cudaTypedefs.h.
template <typename Function>
Function from_driver(const char* name, unsigned int version) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion(name, &found, version, cudaEnableDefault, &result);
  if (error != cudaSuccess || result != cudaDriverEntryPointSuccess) return nullptr;
  return reinterpret_cast<Function>(found);
}

}  // namespace

// Hidden: the driver's own calls of these are not for us.
extern "C" {

[[gnu::visibility("hidden")]] CUresult cuCtxGetDevice(CUdevice* device) {
  static const auto function = from_driver<PFN_cuCtxGetDevice_v2000>("cuCtxGetDevice", 2000);
  return function == nullptr ? CUDA_ERROR_NOT_INITIALIZED : function(device);
}

[[gnu::visibility("hidden")]] CUresult cuCtxPushCurrent(CUcontext context) {
  static const auto function = from_driver<PFN_cuCtxPushCurrent_v4000>("cuCtxPushCurrent", 4000);
  return function == nullptr ? CUDA_ERROR_NOT_INITIALIZED : function(context);
}

[[gnu::visibility("hidden")]] CUresult cuStreamGetCtx(CUstream stream, CUcontext* context) {
  static const auto function = from_driver<PFN_cuStreamGetCtx_v9020>("cuStreamGetCtx", 9020);
  return function == nullptr ? CUDA_ERROR_NOT_INITIALIZED : function(stream, context);
}

}  // extern "C"
