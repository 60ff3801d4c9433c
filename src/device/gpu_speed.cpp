#include "device/gpu_speed.hpp"

#include <chrono>
#include <thread>

#include "base/awake_time.hpp"

namespace garonne::device {
namespace {

constexpr std::size_t bytes_within = std::size_t{128} << 20;
constexpr std::size_t bytes_across = std::size_t{16} << 20;
constexpr int copies = 8;
// A device that others hold for longer is not measured.
constexpr double longest_seconds = 10;
constexpr std::chrono::microseconds between_looks{50};

// What was made, given back in the end.
class Bench {
 public:
  explicit Bench(CudaRuntime& runtime) : runtime_(runtime) {}
  ~Bench() {
    // Given back before it is complete, work would be left without its memory.
    if (begun_ != nullptr) (void)runtime_.destroy_event(begun_);
    if (ended_ != nullptr) (void)runtime_.destroy_event(ended_);
    if (stream_ != nullptr) (void)runtime_.destroy_stream(stream_);
    for (void* const memory : {from_, to_})
      if (memory != nullptr) (void)runtime_.free(memory);
    if (pinned_ != nullptr) (void)runtime_.free_pinned(pinned_);
    // What was refused here is nobody else's failure.
    (void)runtime_.last_error();
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  bool make() {
    std::size_t free = 0;
    std::size_t total = 0;
    int lowest = 0;
    int highest = 0;
    return good(runtime_.memory_info(free, total)) && free >= 2 * bytes_within &&
           good(runtime_.allocate(from_, bytes_within)) &&
           good(runtime_.allocate(to_, bytes_within)) &&
           good(runtime_.allocate_pinned(pinned_, bytes_across)) &&
           good(runtime_.priorities(lowest, highest)) &&
           good(runtime_.create_stream(stream_, lowest)) &&
           good(runtime_.create_event(begun_, true)) && good(runtime_.create_event(ended_, true)) &&
           good(runtime_.fill(from_, 0, bytes_within, stream_));
  }

  // Of all copies together; nothing where one fails.
  std::optional<double> within() {
    return seconds_of(to_, from_, bytes_within, CudaCopy::DeviceToDevice);
  }
  std::optional<double> in() {
    return seconds_of(to_, pinned_, bytes_across, CudaCopy::HostToDevice);
  }
  std::optional<double> out() {
    return seconds_of(pinned_, from_, bytes_across, CudaCopy::DeviceToHost);
  }

 private:
  static bool good(CudaStatus status) { return status == CudaStatus::Success; }

  std::optional<double> seconds_of(void* to, const void* from, std::size_t bytes,
                                   CudaCopy direction) {
    // The first one has what a first use costs.
    bool put = good(runtime_.copy(to, from, bytes, direction, stream_)) &&
               good(runtime_.record_event(begun_, stream_));
    for (int i = 0; i < copies && put; ++i)
      put = good(runtime_.copy(to, from, bytes, direction, stream_));
    put = put && good(runtime_.record_event(ended_, stream_));
    float milliseconds = 0;
    if (!put || !is_over() || !good(runtime_.elapsed(milliseconds, begun_, ended_)))
      return std::nullopt;
    return 1e-3 * static_cast<double>(milliseconds);
  }

  bool is_over() {
    AwakeTime waited;
    for (;;) {
      const CudaStatus status = runtime_.query_event(ended_);
      if (status != CudaStatus::NotReady) return good(status);
      if (waited.seconds() > longest_seconds) return false;
      std::this_thread::sleep_for(between_looks);
    }
  }

  CudaRuntime& runtime_;
  void* from_ = nullptr;
  void* to_ = nullptr;
  void* pinned_ = nullptr;
  CudaStream stream_ = nullptr;
  CudaEvent begun_ = nullptr;
  CudaEvent ended_ = nullptr;
};

}  // namespace

std::optional<GpuSpeed> gpu_speed(CudaRuntime& runtime, int ordinal) {
  if (runtime.set_device(ordinal) != CudaStatus::Success) return std::nullopt;
  Bench bench(runtime);
  if (!bench.make()) return std::nullopt;
  const std::optional<double> within = bench.within();
  const std::optional<double> in = within ? bench.in() : std::nullopt;
  const std::optional<double> out = in ? bench.out() : std::nullopt;
  if (!out) return std::nullopt;
  return GpuSpeed{*within, *in, *out};
}

}  // namespace garonne::device
