// A GPU's device over the made-up runtime whose kernels are the host's.
#pragma once

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "device/cuda_device.hpp"
#include "device/fake_cuda_runtime.hpp"

namespace garonne::exec {

// The device, whose kernels are the host's: what asks where they go waits until Compute is there.
// In a capture they run as well, so that blocks are handed out and taken back, on zeros where
// nothing was copied in, and leave the memory as it was; the graph runs them again, in the order
// that it has, and is to find the same blocks.
class HostKernels final : public device::Device, public device::Captures {
 public:
  HostKernels(device::CudaDevice& device, device::FakeCudaRuntime& runtime)
      : device_(device), runtime_(runtime) {}

  // The memory that kernels of a capture leave as it was.
  void set_memory(std::span<std::byte> memory) { memory_ = memory; }
  // A block of it that is handed out or given back, without contents.
  void spoil(const device::Span& block) {
    // What is freed is Compute's until it has come there.
    if (!capturing_ && !in_graph()) catch_up();
    const Reached reached(*this);
    std::memset(block.data, capturing_ ? 0 : nan_pattern, static_cast<std::size_t>(block.bytes));
    if (capturing_) recorded_.push_back(block.data);
    if (!in_graph()) return;
    if (next_ >= recorded_.size() || recorded_[next_++] != block.data) ++moved_blocks;
  }

  // From now on the host is ended where it touches the device's memory, but within operations of
  // the tensor library that read nothing for the host, and from where a queue is asked for to the
  // end of the instruction: its kernels run there.
  void guard() {
    guarded_ = this;
    runtime_.let_host_reach(false);
  }
  ~HostKernels() override {
    if (guarded_ == this) guarded_ = nullptr;
  }
  static HostKernels*& guarded() { return guarded_; }

  // While there is one the memory can be reached.
  class Reached {
   public:
    explicit Reached(HostKernels& device)
        : device_(device), before_(device.runtime_.let_host_reach(true)) {}
    ~Reached() { device_.runtime_.let_host_reach(before_); }
    Reached(const Reached&) = delete;
    Reached& operator=(const Reached&) = delete;

   private:
    HostKernels& device_;
    const bool before_;
  };

  void begin_capture(const std::string& activity) override {
    device_.begin_capture(activity);
    recorded_.clear();
    capturing_ = true;
    before_.assign(memory_.begin(), memory_.end());
    runtime_.launch(native(), [this] { next_ = 0; });
  }
  int end_capture(const std::string& activity) override {
    const int graph = device_.end_capture(activity);
    leave_capture();
    return graph;
  }
  void drop_capture() noexcept override {
    device_.drop_capture();
    if (capturing_) leave_capture();
  }
  device::Mark launch(int graph, const std::string& activity) override {
    ++launches;
    return device_.launch(graph, activity);
  }
  void drop(int graph) noexcept override { device_.drop(graph); }
  void put_kernels(const std::function<void()>& kernels) override {
    kernels();
    runtime_.launch(native(), [kernels] {
      in_graph() = true;
      at::init_num_threads();  // as where the step was recorded
      kernels();
      in_graph() = false;
    });
  }

  DeviceKind kind() const override { return device_.kind(); }
  device::MemoryFacts memory() const override { return device_.memory(); }
  Queue queue(Lane lane) const override {
    if (lane != Lane::Compute) return device_.queue(lane);
    if (!capturing_ && !in_graph()) catch_up();
    if (guarded_ == this) runtime_.let_host_reach(true);
    return {DeviceKind::Emulated, nullptr, 0};
  }
  device::Mark launched(Lane lane, const std::string& activity) override {
    if (guarded_ == this) runtime_.let_host_reach(false);
    return device_.launched(lane, activity);
  }
  device::Mark mark(Lane lane) override { return device_.mark(lane); }
  void order(Lane later, device::Mark earlier) override {
    device_.order(later, earlier);
    if (later == Lane::Compute && !capturing_) late_ = true;
  }
  void wait(device::Mark mark) override {
    ++waits;
    device_.wait(mark);
  }
  bool done(device::Mark mark) override { return device_.done(mark); }
  device::Mark timed_mark(Lane lane) override { return device_.timed_mark(lane); }
  double seconds(device::Mark from, device::Mark to) const override {
    return device_.seconds(from, to);
  }
  void forget_times() override { device_.forget_times(); }
  void end() noexcept override { device_.end(); }
  device::ThreadCopies& thread_copies(Lane lane) override { return device_.thread_copies(lane); }

  // Compute has been made to follow another lane, by others, whose buffers may go now.
  void follows() {
    if (capturing_) return;
    late_ = true;
    catch_up();
  }
  // What follows another lane has to be there before the host computes with it.
  void catch_up() const {
    if (!std::exchange(late_, false)) return;
    device_.wait(device_.mark(Lane::Compute));
  }

  int waits = 0;  // of the host, asked for by others than the kernels
  int launches = 0;
  std::atomic<int> moved_blocks = 0;  // that graphs did not find where they were recorded

 private:
  device::Mark put_copy(Lane lane, device::Span to, device::Span from, std::string activity,
                        std::span<const device::Mark> after) override {
    return device_.copy(lane, to, from, std::move(activity), after);
  }
  device::Mark put_run(Lane lane, std::function<void()> work, std::string activity,
                       std::span<const device::Mark> after) override {
    return device_.run(lane, std::move(work), std::move(activity), after);
  }

  void leave_capture() {
    capturing_ = false;
    std::ranges::copy(before_, memory_.begin());
  }
  static constexpr int nan_pattern = 0xFF;

  void* native() const { return device_.queue(Lane::Compute).native; }
  // Of the calling thread.
  static bool& in_graph() {
    thread_local bool inside = false;
    return inside;
  }

  device::CudaDevice& device_;
  device::FakeCudaRuntime& runtime_;
  std::span<std::byte> memory_;
  std::vector<std::byte> before_;  // what was there when the capture began
  std::vector<const std::byte*> recorded_;
  std::size_t next_ = 0;
  bool capturing_ = false;
  mutable bool late_ = false;
  static inline HostKernels* guarded_ = nullptr;
};

}  // namespace garonne::exec
