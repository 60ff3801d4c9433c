#include "device/gpu_speed.hpp"

#include <chrono>
#include <thread>

#include "base/awake_time.hpp"

namespace garonne::device {
namespace {

constexpr std::size_t bytes_within = std::size_t{64} << 20;
constexpr std::size_t bytes_across = std::size_t{8} << 20;
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
    if (forked_ != nullptr) (void)runtime_.destroy_event(forked_);
    for (const CudaStream stream : {stream_, other_})
      if (stream != nullptr) (void)runtime_.destroy_stream(stream);
    for (void* const memory : {from_, to_})
      if (memory != nullptr) (void)runtime_.free(memory);
    for (void* const memory : {pinned_, pinned_too_})
      if (memory != nullptr) (void)runtime_.free_pinned(memory);
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
           good(runtime_.allocate_pinned(pinned_too_, bytes_across)) &&
           good(runtime_.priorities(lowest, highest)) &&
           good(runtime_.create_stream(stream_, lowest)) &&
           good(runtime_.create_stream(other_, lowest)) &&
           good(runtime_.create_event(forked_, false)) &&
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
  std::optional<double> both() {
    bool put =
        good(runtime_.record_event(begun_, stream_)) && good(runtime_.wait_event(other_, begun_));
    for (int i = 0; i < copies && put; ++i) {
      put = good(runtime_.copy(to_, pinned_, bytes_across, CudaCopy::HostToDevice, stream_)) &&
            good(runtime_.copy(pinned_too_, from_, bytes_across, CudaCopy::DeviceToHost, other_));
    }
    return put && good(runtime_.record_event(forked_, other_)) &&
                   good(runtime_.wait_event(stream_, forked_))
               ? seconds_to_here()
               : std::nullopt;
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
    return put ? seconds_to_here() : std::nullopt;
  }

  // Since `begun_`.
  std::optional<double> seconds_to_here() {
    float milliseconds = 0;
    if (!good(runtime_.record_event(ended_, stream_)) || !is_over() ||
        !good(runtime_.elapsed(milliseconds, begun_, ended_)))
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
  void* pinned_too_ = nullptr;
  CudaStream stream_ = nullptr;
  CudaStream other_ = nullptr;
  CudaEvent forked_ = nullptr;
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
  const std::optional<double> both = out ? bench.both() : std::nullopt;
  if (!both) return std::nullopt;
  return GpuSpeed{*within, *in, *out, *both, static_cast<double>(copies * bytes_across)};
}

}  // namespace garonne::device
