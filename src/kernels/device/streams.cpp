// Streams of CUDA: the only source that starts Kokkos, which is one per process.
#include "kernels/device/streams.hpp"

#include "base/error.hpp"

#include <Kokkos_Core.hpp>

#include <cuda_runtime.h>
#include <omp.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace garonne::kernels::device {

namespace {

void check(cudaError_t code, const char* operation) {
  if (code == cudaSuccess) return;
  throw InternalError(std::string(operation) + ": " + cudaGetErrorString(code));
}

// Kokkos ends the process where a device has failed: what it holds there is left to the end of it,
// so that the failure is told.
bool device_failed = false;

struct NoTeam {
  template <typename Member>
  KOKKOS_FUNCTION void operator()(const Member&) const {}
};

// Kokkos allocates memory that teams share in every launch, zero bytes of it, until it has some
// there: a call that holds the host, and that nobody may make while a graph is recorded.
void make_team_scratch(const Kokkos::Cuda& space) {
  Kokkos::TeamPolicy<Kokkos::Cuda> policy(space, 1, 1, 1);
  policy.set_scratch_size(1, Kokkos::PerTeam(64));
  Kokkos::parallel_for("garonne", policy, NoTeam{});
  space.fence("garonne: the memory of teams is there");
}

// What a kernel needs on a stream. Instances of Kokkos and scratch are made here and not in a
// kernel's call, since both wait for the device.
struct Stream {
  explicit Stream(cudaStream_t stream) : space(std::make_unique<Kokkos::Cuda>(stream)) {
    check(cudaMalloc(&scratch,
                     static_cast<std::size_t>(scratch_doubles + block_doubles) * sizeof(double)),
          "cudaMalloc of the kernels' scratch");
    make_team_scratch(*space);
  }
  ~Stream() {
    if (cudaFree(scratch) == cudaSuccess) return;
    device_failed = true;
    static_cast<void>(space.release());
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  std::unique_ptr<Kokkos::Cuda> space;
  void* scratch = nullptr;
};

std::mutex mutex;
std::map<void*, std::unique_ptr<Stream>> streams;
bool kokkos_is_ours = false;  // to stop

__global__ void nothing() {}

// Kokkos would end the process.
void expect_code_for(int device) {
  cudaFuncAttributes attributes{};
  const cudaError_t code = cudaFuncGetAttributes(&attributes, nothing);
  if (code == cudaSuccess) return;
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  const std::string architecture =
      std::to_string(properties.major) + std::to_string(properties.minor);
  throw NotBuiltError("code for " + std::string(properties.name) + ", which is of architecture " +
                          architecture + " (" + cudaGetErrorString(code) + ")",
                      properties.major < 8 ? "kernels need a GPU of architecture 80 or newer"
                      : properties.major < 9
                          ? "build with `scripts/setup --cuda --architecture 80`"
                          : "build with `scripts/setup --cuda --architecture 90`");
}

void start_kokkos() {
  int device = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  expect_code_for(device);
  if (!Kokkos::is_initialized()) {
    // It sets how many threads OpenMP has, so it is told what there is.
    Kokkos::initialize(Kokkos::InitializationSettings()
                           .set_device_id(device)
                           .set_num_threads(omp_get_max_threads())
                           .set_disable_warnings(true));
    kokkos_is_ours = true;
  }
  expect(Kokkos::device_id() == device, "kernels are on device " +
                                            std::to_string(Kokkos::device_id()) +
                                            " and cannot be on device " + std::to_string(device));
}

}  // namespace

void begin_stream(void* stream) {
  const std::lock_guard<std::mutex> lock(mutex);
  expect(stream != nullptr, "kernels are not put into CUDA's default stream");
  start_kokkos();
  expect(!streams.contains(stream), "a second StreamSession on one stream");
  streams.emplace(stream, std::make_unique<Stream>(static_cast<cudaStream_t>(stream)));
}

void end_stream(void* stream) {
  const std::lock_guard<std::mutex> lock(mutex);
  streams.erase(stream);
}

void end_streams() {
  const std::lock_guard<std::mutex> lock(mutex);
  streams.clear();
  if (kokkos_is_ours && !device_failed) Kokkos::finalize();
  kokkos_is_ours = false;
}

Place place_of(void* stream, std::source_location where) {
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = streams.find(stream);
  if (found == streams.end()) {
    throw InternalError(std::string(where.function_name()) +
                            " was put into a queue of cuda whose stream has no StreamSession",
                        where);
  }
  Stream& own = *found->second;
  return {Space::Cuda, own.space.get(), static_cast<double*>(own.scratch)};
}

}  // namespace garonne::kernels::device
