// The calls of the CUDA runtime that Garonne makes, as one class without CUDA's headers: all that
// stands on it compiles in every build, and tests put a runtime of their own in its place.
//
// What is not here is not done: nothing waits inside the runtime (a wait polls, so that it can
// end), no stream is one that others are ordered by, nothing goes to the default stream, and no
// memory is managed by the driver.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace garonne::device {

// cudaError_t, of whose values only two mean something here.
enum class [[nodiscard]] CudaStatus : int{Success = 0, NotReady = 600};

// Never defined: they are cudaStream_t, cudaEvent_t, cudaGraph_t and cudaGraphExec_t.
struct CudaStreamHandle;
struct CudaEventHandle;
struct CudaGraphHandle;
struct CudaReadyGraphHandle;
using CudaStream = CudaStreamHandle*;
using CudaEvent = CudaEventHandle*;
using CudaGraph = CudaGraphHandle*;
using CudaReadyGraph = CudaReadyGraphHandle*;

enum class CudaCopy { DeviceToHost, HostToDevice, DeviceToDevice };

// How many processes a device lets in: any, none, one.
enum class ComputeMode { Shared, Prohibited, Exclusive };

struct CudaProperties {
  std::string name;
  std::int64_t total_bytes = 0;
  int multiprocessors = 0;
  int major = 0;  // compute capability
  int minor = 0;
};

// Each member makes the call that its comment names and gives back what that said. Results are
// written where it succeeded. Safe for all threads, as the runtime is.
class CudaRuntime {
 public:
  virtual ~CudaRuntime() = default;
  CudaRuntime(const CudaRuntime&) = delete;
  CudaRuntime& operator=(const CudaRuntime&) = delete;

  // Devices, by their number among the visible ones.
  virtual CudaStatus device_count(int& count) = 0;  // GetDeviceCount
  virtual CudaStatus properties(int ordinal,
                                CudaProperties& properties) = 0;        // GetDeviceProperties
  virtual CudaStatus compute_mode(int ordinal, ComputeMode& mode) = 0;  // DeviceGetAttribute
  virtual CudaStatus bus_id(int ordinal, std::string& id) = 0;          // DeviceGetPCIBusId
  // 13020 is 13.2: the newest that the driver knows, and that of the library.
  virtual CudaStatus driver_version(int& version) = 0;   // DriverGetVersion
  virtual CudaStatus runtime_version(int& version) = 0;  // RuntimeGetVersion
  // Of the calling thread: what it calls from now on goes to that device. Without it a thread's
  // first call makes a context on device 0.
  virtual CudaStatus set_device(int ordinal) = 0;                             // SetDevice
  virtual CudaStatus memory_info(std::size_t& free, std::size_t& total) = 0;  // MemGetInfo

  // Memory. All four stop the device until they are done: at start and at the end only.
  virtual CudaStatus allocate(void*& memory, std::size_t bytes) = 0;         // Malloc
  virtual CudaStatus free(void* memory) = 0;                                 // Free
  virtual CudaStatus allocate_pinned(void*& memory, std::size_t bytes) = 0;  // HostAlloc
  virtual CudaStatus free_pinned(void* memory) = 0;                          // FreeHost

  // Streams that the default stream does not order. The highest priority is the least number.
  virtual CudaStatus priorities(int& lowest, int& highest) = 0;  // DeviceGetStreamPriorityRange
  virtual CudaStatus create_stream(CudaStream& stream,
                                   int priority) = 0;        // StreamCreateWithPriority
  virtual CudaStatus destroy_stream(CudaStream stream) = 0;  // StreamDestroy
  virtual CudaStatus query_stream(CudaStream stream) = 0;    // StreamQuery
  virtual CudaStatus wait_event(CudaStream stream, CudaEvent event) = 0;  // StreamWaitEvent
  // What is put on the stream later starts once the pinned word is at least `value`, in the order
  // of numbers that wrap around. Not on every device: cuda_not_supported there.
  virtual CudaStatus wait_value(CudaStream stream, std::uint32_t* pinned,
                                std::uint32_t value) = 0;  // cuStreamWaitValue32

  // Events. One that was never recorded counts as complete.
  virtual CudaStatus create_event(CudaEvent& event, bool timed) = 0;        // EventCreateWithFlags
  virtual CudaStatus destroy_event(CudaEvent event) = 0;                    // EventDestroy
  virtual CudaStatus record_event(CudaEvent event, CudaStream stream) = 0;  // EventRecord
  virtual CudaStatus query_event(CudaEvent event) = 0;                      // EventQuery
  virtual CudaStatus elapsed(float& milliseconds, CudaEvent from,
                             CudaEvent to) = 0;  // EventElapsedTime

  // Work. Host memory of copies is pinned: with other memory the call waits for the copy.
  virtual CudaStatus copy(void* to, const void* from, std::size_t bytes, CudaCopy direction,
                          CudaStream stream) = 0;  // MemcpyAsync
  virtual CudaStatus fill(void* memory, int byte, std::size_t bytes,
                          CudaStream stream) = 0;  // MemsetAsync
  // The function makes no calls of the runtime. It is not called where the device failed before.
  virtual CudaStatus launch_host(CudaStream stream, void (*function)(void*),
                                 void* data) = 0;  // LaunchHostFunc

  // Graphs. Between the first two calls nothing that is put on the stream, or on one that follows
  // it by events, is carried out: it becomes the graph. Until then the calling thread allocates
  // nothing, asks no event or stream how far it is, and other threads do as they like; all streams
  // have joined the first one before the end. Without a graph where something was not allowed.
  virtual CudaStatus begin_capture(CudaStream stream) = 0;                    // StreamBeginCapture
  virtual CudaStatus end_capture(CudaStream stream, CudaGraph& graph) = 0;    // StreamEndCapture
  virtual CudaStatus make_ready(CudaReadyGraph& ready, CudaGraph graph) = 0;  // GraphInstantiate
  virtual CudaStatus launch_graph(CudaReadyGraph ready, CudaStream stream) = 0;  // GraphLaunch
  virtual CudaStatus destroy_graph(CudaGraph graph) = 0;                         // GraphDestroy
  virtual CudaStatus destroy_ready(CudaReadyGraph ready) = 0;                    // GraphExecDestroy

  // What the last launch of a kernel on this thread ended with, which is forgotten.
  virtual CudaStatus last_error() = 0;  // GetLastError
  // "cudaErrorIllegalAddress: an illegal memory access was encountered".
  virtual std::string error_text(CudaStatus status) = 0;  // GetErrorName, GetErrorString

 protected:
  CudaRuntime() = default;
};

// What wait_value gives where the device cannot (cudaErrorNotSupported).
inline constexpr CudaStatus cuda_not_supported{801};

// The real one. NotBuiltError in builds without CUDA.
std::unique_ptr<CudaRuntime> make_cuda_runtime();

}  // namespace garonne::device
