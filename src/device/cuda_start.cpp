#include "device/cuda_start.hpp"

#include <fmt/format.h>
#include <sys/resource.h>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "device/cuda_check.hpp"

namespace garonne::device {
namespace {

// Of cudaError_t: MemoryAllocation, InsufficientDriver, DevicesUnavailable, NoDevice.
constexpr CudaStatus no_memory{2};
constexpr CudaStatus driver_too_old{35};
constexpr CudaStatus device_taken{46};
constexpr CudaStatus no_device{100};

// Most drivers pin without asking for it, so it refuses nothing ahead of them.
std::string limit_of_locked_memory() {
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "";
  return fmt::format("; or it is more than {}, which is what this process may lock (ulimit -l)",
                     format_bytes(static_cast<std::int64_t>(limit.rlim_cur)));
}

}  // namespace

int visible_gpus(CudaRuntime& runtime, const std::string& asked) {
  int count = 0;
  const CudaStatus status = runtime.device_count(count);
  if (status == no_device) return 0;
  if (status == driver_too_old) {
    throw ConfigError("run.device", asked,
                      "the driver of this node is older than this build's CUDA needs. Have a newer "
                      "one installed (nvidia-smi shows it), or set run.device to \"cpu\"");
  }
  if (status != CudaStatus::Success) {
    throw ConfigError("run.device", asked,
                      fmt::format("the CUDA runtime finds no devices: {}. Or set run.device to "
                                  "\"cpu\"",
                                  runtime.error_text(status)));
  }
  return count;
}

void start_on_gpu(const std::function<void()>& work, const std::string& purpose) {
  try {
    work();
  } catch (const CudaFailure& failure) {
    if (failure.status() == device_taken) {
      throw ConfigError("run.device", "cuda",
                        "the device lets one process in and another one is there: end that one "
                        "(nvidia-smi shows it), have the compute mode set to Default, or take "
                        "another device");
    }
    if (failure.status() != no_memory) throw;
    if (failure.call() == "cudaHostAlloc") {
      throw ConfigError("run.device", "cuda",
                        fmt::format("the host has no memory left to pin for {}: end what else runs "
                                    "on the node, or start fewer ranks there{}",
                                    failure.activity(), limit_of_locked_memory()));
    }
    if (!purpose.empty()) {
      throw ConfigError("run.device", "cuda",
                        fmt::format("other processes hold the memory of the device that {} needs "
                                    "for {}: end them (nvidia-smi shows them), start again when "
                                    "they have less, or take another device",
                                    failure.activity(), purpose));
    }
    throw ConfigError("run.device", "cuda",
                      fmt::format("other processes hold the memory of the device that {} needs: "
                                  "end them (nvidia-smi shows them), lower memory.budget or take "
                                  "another device",
                                  failure.activity()));
  }
}

}  // namespace garonne::device
