// The CUDA runtime itself.
#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <array>

#include "device/cuda_runtime.hpp"

namespace garonne::device {
namespace {

static_assert(static_cast<int>(CudaStatus::Success) == cudaSuccess);
static_assert(static_cast<int>(CudaStatus::NotReady) == cudaErrorNotReady);
static_assert(static_cast<int>(cuda_not_supported) == cudaErrorNotSupported);

CudaStatus status(cudaError_t error) {
  return static_cast<CudaStatus>(error);
}

cudaStream_t native(CudaStream stream) {
  return reinterpret_cast<cudaStream_t>(stream);
}

cudaEvent_t native(CudaEvent event) {
  return reinterpret_cast<cudaEvent_t>(event);
}

cudaGraph_t native(CudaGraph graph) {
  return reinterpret_cast<cudaGraph_t>(graph);
}

cudaGraphExec_t native(CudaReadyGraph ready) {
  return reinterpret_cast<cudaGraphExec_t>(ready);
}

cudaMemcpyKind kind(CudaCopy direction) {
  switch (direction) {
    case CudaCopy::DeviceToHost:
      return cudaMemcpyDeviceToHost;
    case CudaCopy::HostToDevice:
      return cudaMemcpyHostToDevice;
    case CudaCopy::DeviceToDevice:
      break;
  }
  return cudaMemcpyDeviceToDevice;
}

class Library final : public CudaRuntime {
 public:
  // A node without any driver is told as one whose driver is too old.
  CudaStatus device_count(int& count) override {
    const cudaError_t error = cudaGetDeviceCount(&count);
    int driver = 0;
    if (error == cudaErrorInsufficientDriver && cudaDriverGetVersion(&driver) == cudaSuccess &&
        driver == 0) {
      return status(cudaErrorNoDevice);
    }
    return status(error);
  }

  CudaStatus properties(int ordinal, CudaProperties& properties) override {
    cudaDeviceProp facts{};
    const cudaError_t error = cudaGetDeviceProperties(&facts, ordinal);
    if (error == cudaSuccess) {
      properties = {.name = static_cast<const char*>(facts.name),
                    .total_bytes = static_cast<std::int64_t>(facts.totalGlobalMem),
                    .multiprocessors = facts.multiProcessorCount,
                    .major = facts.major,
                    .minor = facts.minor};
    }
    return status(error);
  }

  CudaStatus driver_version(int& version) override {
    return status(cudaDriverGetVersion(&version));
  }
  CudaStatus runtime_version(int& version) override {
    return status(cudaRuntimeGetVersion(&version));
  }

  CudaStatus compute_mode(int ordinal, ComputeMode& mode) override {
    int value = 0;
    const cudaError_t error = cudaDeviceGetAttribute(&value, cudaDevAttrComputeMode, ordinal);
    if (error == cudaSuccess) {
      mode = value == cudaComputeModeProhibited ? ComputeMode::Prohibited
             : value == cudaComputeModeDefault  ? ComputeMode::Shared
                                                : ComputeMode::Exclusive;
    }
    return status(error);
  }

  CudaStatus bus_id(int ordinal, std::string& id) override {
    std::array<char, 32> text{};
    const cudaError_t error =
        cudaDeviceGetPCIBusId(text.data(), static_cast<int>(text.size()), ordinal);
    if (error == cudaSuccess) id = text.data();
    return status(error);
  }

  CudaStatus set_device(int ordinal) override { return status(cudaSetDevice(ordinal)); }

  CudaStatus memory_info(std::size_t& free, std::size_t& total) override {
    return status(cudaMemGetInfo(&free, &total));
  }

  CudaStatus allocate(void*& memory, std::size_t bytes) override {
    return status(cudaMalloc(&memory, bytes));
  }

  CudaStatus free(void* memory) override { return status(cudaFree(memory)); }

  CudaStatus allocate_pinned(void*& memory, std::size_t bytes) override {
    return status(cudaHostAlloc(&memory, bytes, cudaHostAllocDefault));
  }

  CudaStatus free_pinned(void* memory) override { return status(cudaFreeHost(memory)); }

  CudaStatus priorities(int& lowest, int& highest) override {
    return status(cudaDeviceGetStreamPriorityRange(&lowest, &highest));
  }

  CudaStatus create_stream(CudaStream& stream, int priority) override {
    cudaStream_t made = nullptr;
    const cudaError_t error = cudaStreamCreateWithPriority(&made, cudaStreamNonBlocking, priority);
    if (error == cudaSuccess) stream = reinterpret_cast<CudaStream>(made);
    return status(error);
  }

  CudaStatus destroy_stream(CudaStream stream) override {
    return status(cudaStreamDestroy(native(stream)));
  }

  CudaStatus query_stream(CudaStream stream) override {
    return status(cudaStreamQuery(native(stream)));
  }

  CudaStatus wait_event(CudaStream stream, CudaEvent event) override {
    return status(cudaStreamWaitEvent(native(stream), native(event), cudaEventWaitDefault));
  }

  CudaStatus wait_value(CudaStream stream, std::uint32_t* pinned, std::uint32_t value) override {
    // Of the driver, which is asked for it: the program does not link with the driver's library.
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result{};
    const cudaError_t error = cudaGetDriverEntryPointByVersion(
        "cuStreamWaitValue32", &found, CUDART_VERSION, cudaEnableDefault, &result);
    if (error != cudaSuccess) return status(error);
    if (result != cudaDriverEntryPointSuccess || found == nullptr) return cuda_not_supported;
    const auto call = reinterpret_cast<PFN_cuStreamWaitValue32_v11070>(found);
    // Errors of driver and runtime have the same numbers.
    return static_cast<CudaStatus>(call(native(stream), reinterpret_cast<CUdeviceptr>(pinned),
                                        value, CU_STREAM_WAIT_VALUE_GEQ));
  }

  CudaStatus create_event(CudaEvent& event, bool timed) override {
    cudaEvent_t made = nullptr;
    const cudaError_t error =
        cudaEventCreateWithFlags(&made, timed ? cudaEventDefault : cudaEventDisableTiming);
    if (error == cudaSuccess) event = reinterpret_cast<CudaEvent>(made);
    return status(error);
  }

  CudaStatus destroy_event(CudaEvent event) override {
    return status(cudaEventDestroy(native(event)));
  }

  CudaStatus record_event(CudaEvent event, CudaStream stream) override {
    return status(cudaEventRecord(native(event), native(stream)));
  }

  CudaStatus query_event(CudaEvent event) override { return status(cudaEventQuery(native(event))); }

  CudaStatus elapsed(float& milliseconds, CudaEvent from, CudaEvent to) override {
    return status(cudaEventElapsedTime(&milliseconds, native(from), native(to)));
  }

  CudaStatus copy(void* to, const void* from, std::size_t bytes, CudaCopy direction,
                  CudaStream stream) override {
    return status(cudaMemcpyAsync(to, from, bytes, kind(direction), native(stream)));
  }

  CudaStatus fill(void* memory, int byte, std::size_t bytes, CudaStream stream) override {
    return status(cudaMemsetAsync(memory, byte, bytes, native(stream)));
  }

  CudaStatus launch_host(CudaStream stream, void (*function)(void*), void* data) override {
    return status(cudaLaunchHostFunc(native(stream), function, data));
  }

  CudaStatus begin_capture(CudaStream stream) override {
    return status(cudaStreamBeginCapture(native(stream), cudaStreamCaptureModeThreadLocal));
  }

  CudaStatus end_capture(CudaStream stream, CudaGraph& graph) override {
    cudaGraph_t made = nullptr;
    const cudaError_t error = cudaStreamEndCapture(native(stream), &made);
    if (error == cudaSuccess) graph = reinterpret_cast<CudaGraph>(made);
    return status(error);
  }

  CudaStatus make_ready(CudaReadyGraph& ready, CudaGraph graph) override {
    cudaGraphExec_t made = nullptr;
    const cudaError_t error = cudaGraphInstantiate(&made, native(graph), 0ULL);
    if (error == cudaSuccess) ready = reinterpret_cast<CudaReadyGraph>(made);
    return status(error);
  }

  CudaStatus launch_graph(CudaReadyGraph ready, CudaStream stream) override {
    return status(cudaGraphLaunch(native(ready), native(stream)));
  }

  CudaStatus destroy_graph(CudaGraph graph) override {
    return status(cudaGraphDestroy(native(graph)));
  }

  CudaStatus destroy_ready(CudaReadyGraph ready) override {
    return status(cudaGraphExecDestroy(native(ready)));
  }

  CudaStatus last_error() override { return status(cudaGetLastError()); }

  std::string error_text(CudaStatus failed) override {
    const auto error = static_cast<cudaError_t>(failed);
    return fmt::format("{}: {}", cudaGetErrorName(error), cudaGetErrorString(error));
  }
};

}  // namespace

std::unique_ptr<CudaRuntime> make_cuda_runtime() {
  return std::make_unique<Library>();
}

}  // namespace garonne::device
