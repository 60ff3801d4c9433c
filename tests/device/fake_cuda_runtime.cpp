#include "fake_cuda_runtime.hpp"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "device/lateness.hpp"
#include "device/numa_policy.hpp"

namespace garonne::device {
namespace {

constexpr CudaStatus launch_failure{719};
constexpr CudaStatus capture_refuses{900};  // StreamCaptureUnsupported

// Streams look at pinned words again so often: nobody tells them.
constexpr auto look_again = std::chrono::microseconds(50);

}  // namespace

FakeCudaRuntime::FakeCudaRuntime(const FakeCudaSettings& settings) : settings_(settings) {}

FakeCudaRuntime::~FakeCudaRuntime() {
  {
    const std::lock_guard lock(mutex_);
    for (const auto& stream : streams_) end(*stream);
  }
  for (const auto& stream : streams_) {
    if (stream->thread.joinable()) stream->thread.join();
  }
  for (const auto& block : blocks_) {
    munmap(block->side, block->bytes);
    if (block->address != block->side) munmap(block->address, block->bytes);
  }
}

bool& FakeCudaRuntime::in_host_function() {
  thread_local bool inside = false;
  return inside;
}

CudaStatus FakeCudaRuntime::enter(const std::string& call, bool of_thread_device) {
  ++calls_[call];
  static const std::set<std::string> unsafe = {
      "cudaMalloc",     "cudaFree",        "cudaHostAlloc",      "cudaFreeHost",
      "cudaEventQuery", "cudaStreamQuery", "cuStreamWaitValue32"};
  if (calls_capture() && unsafe.contains(call)) return spoil_capture(call, capture_refuses);
  if (in_host_function()) accuse(call + " is called by a host function");
  const bool told = threads_with_device_.contains(std::this_thread::get_id());
  if (of_thread_device && !told) accuse(call + " on a thread that did not call cudaSetDevice");
  unseen_ = false;
  const auto found = failures_.find(call);
  if (found != failures_.end() && found->second.calls_left-- == 0) {
    unseen_ = found->second.unseen;
    const CudaStatus status = found->second.status;
    failures_.erase(found);
    // Calls of the driver leave no error behind.
    return call.starts_with("cuda") ? keep(status) : status;
  }
  return failed_ ? keep(launch_failure) : CudaStatus::Success;
}

// As the real runtime does with what each of its calls says, whatever becomes of the error.
CudaStatus FakeCudaRuntime::keep(CudaStatus status) {
  if (status != CudaStatus::Success && status != CudaStatus::NotReady)
    last_errors_[std::this_thread::get_id()] = status;
  return status;
}

bool FakeCudaRuntime::faulty(CudaFault fault) {
  if (settings_.fault != fault) return false;
  const int place = fault_places_++;
  return !settings_.fault_at || *settings_.fault_at == place;
}

void FakeCudaRuntime::accuse(const std::string& what) {
  if (std::ranges::find(violations_, what) == violations_.end()) violations_.push_back(what);
}

FakeCudaRuntime::Stream* FakeCudaRuntime::stream_of(void* handle, const std::string& call) {
  if (handle != nullptr && faulty(CudaFault::DefaultStream)) handle = nullptr;
  if (handle == nullptr) {
    accuse(call + " on the default stream");
    return nullptr;
  }
  for (const auto& stream : streams_) {
    if (stream.get() != handle) continue;
    if (!stream->destroyed) return stream.get();
    accuse(call + " on a destroyed stream");
    return nullptr;
  }
  accuse(call + " on what is no stream");
  return nullptr;
}

FakeCudaRuntime::Event* FakeCudaRuntime::event_of(CudaEvent handle, const std::string& call) {
  for (const auto& event : events_) {
    if (static_cast<void*>(event.get()) != handle) continue;
    if (!event->destroyed) return event.get();
    accuse(call + " of a destroyed event");
    return nullptr;
  }
  accuse(call + " of what is no event");
  return nullptr;
}

FakeCudaRuntime::Block* FakeCudaRuntime::block_of(const void* address, std::size_t bytes,
                                                  bool pinned, const std::string& what) {
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  for (const auto& block : blocks_) {
    const auto first = reinterpret_cast<std::uintptr_t>(block->address);
    if (begin < first || begin + bytes > first + block->bytes || block->pinned != pinned) continue;
    if (!block->freed) return block.get();
    accuse(what + " was freed");
    return nullptr;
  }
  accuse(what + (pinned ? " is not pinned" : " is not the device's"));
  return nullptr;
}

void FakeCudaRuntime::put(Stream& stream, Operation operation) {
  if (stream.capturing) {
    if (faulty(CudaFault::EarlyCapture)) {
      stream.capturing = false;
      put(stream, std::move(operation));
      stream.capturing = true;
      return;
    }
    capture_->nodes.push_back({std::move(operation.body), stream.last, operation.meets_others});
    stream.last = {capture_->nodes.size() - 1};
    return;
  }
  stream.queue.push_back(std::move(operation));
  ++stream.put;
  stream.changed.notify_all();
}

void FakeCudaRuntime::ask_for(Stream& stream, std::uint64_t number) {
  if (number <= stream.asked_for) return;
  stream.asked_for = number;
  stream.changed.notify_all();
}

void FakeCudaRuntime::end(Stream& stream) {
  stream.ending = true;
  stream.changed.notify_all();
  done_.notify_all();
}

void FakeCudaRuntime::serve(Stream& stream) {
  std::unique_lock lock(mutex_);
  while (true) {
    stream.changed.wait(lock, [&] { return stream.ending || !stream.queue.empty(); });
    if (stream.queue.empty()) return;
    Operation operation = std::move(stream.queue.front());
    stream.queue.pop_front();
    const std::uint64_t number = stream.done + 1;
    const auto ended = [&] { return stream.ending || failed_; };
    Lateness late;
    if (settings_.delay_seed && !ended()) {
      late = lateness_of(*settings_.delay_seed,
                         {static_cast<Lane>(stream.number % lane_count), number},
                         settings_.longest_delay_seconds);
    }
    if (late.until_asked_for) {
      stream.changed.wait_for(lock, std::chrono::duration<double>(settings_.longest_hold_seconds),
                              [&] { return ended() || stream.asked_for >= number; });
    }
    if (late.seconds > 0 || late.yields > 0) {
      lock.unlock();
      std::this_thread::sleep_for(std::chrono::duration<double>(late.seconds));
      for (int yield = 0; yield < late.yields; ++yield) std::this_thread::yield();
      lock.lock();
    }
    while (operation.ready && !ended() && !operation.ready()) {
      if (operation.of_pinned_words) {
        done_.wait_for(lock, look_again);
      } else {
        done_.wait(lock);
      }
    }
    if (operation.body && !failed_) {
      stream.running = true;
      lock.unlock();
      operation.body();
      operation.body = nullptr;
      lock.lock();
      stream.running = false;
    }
    stream.done = number;
    done_.notify_all();
  }
}

bool FakeCudaRuntime::busy() const {
  return std::ranges::any_of(streams_,
                             [](const auto& stream) { return stream->done < stream->put; });
}

bool FakeCudaRuntime::records(void* handle) {
  const std::lock_guard lock(mutex_);
  const Stream* const stream = stream_of(handle, "a question about a capture");
  return stream != nullptr && stream->capturing;
}

void FakeCudaRuntime::launch(void* handle, std::function<void()> kernel, bool meets_others) {
  const std::lock_guard lock(mutex_);
  Stream* const stream = stream_of(handle, "a kernel");
  if (stream == nullptr) return;
  ++kernels_;
  const bool fails = std::exchange(kernel_fails_, false);
  put(*stream, {nullptr,
                [this, fails, kernel = std::move(kernel)] {
                  if (!fails) {
                    kernel();
                    const std::lock_guard inner(mutex_);
                    ++kernels_run_;
                    return;
                  }
                  const std::lock_guard inner(mutex_);
                  failed_ = true;
                  done_.notify_all();
                  for (const auto& each : streams_) each->changed.notify_all();
                },
                meets_others});
}

std::byte* FakeCudaRuntime::device_side(const void* address) {
  const std::lock_guard lock(mutex_);
  const Block* const block = block_of(address, 0, false, "what a kernel reaches for");
  if (block == nullptr) return nullptr;
  return block->side + (static_cast<const std::byte*>(address) - block->address);
}

void FakeCudaRuntime::fail(const std::string& call, int number, bool unseen, CudaStatus status) {
  const std::lock_guard lock(mutex_);
  failures_[call] = {number, unseen, status};
}

int FakeCudaRuntime::failures_left() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(failures_.size());
}

void FakeCudaRuntime::fail_next_kernel() {
  const std::lock_guard lock(mutex_);
  kernel_fails_ = true;
}

bool FakeCudaRuntime::let_host_reach(bool reaches) {
  const std::lock_guard lock(mutex_);
  if (reaches == host_reaches_) return reaches;
  for (const auto& block : blocks_) {
    if (block->pinned || block->freed) continue;
    mprotect(block->address, block->bytes, reaches ? PROT_READ | PROT_WRITE : PROT_NONE);
  }
  return std::exchange(host_reaches_, reaches);
}

std::vector<std::string> FakeCudaRuntime::violations() const {
  const std::lock_guard lock(mutex_);
  return violations_;
}

std::int64_t FakeCudaRuntime::pinned_bytes() const {
  const std::lock_guard lock(mutex_);
  std::int64_t bytes = 0;
  for (const auto& block : blocks_) {
    if (block->pinned && !block->freed) bytes += static_cast<std::int64_t>(block->bytes);
  }
  return bytes;
}

FakeCudaCounts FakeCudaRuntime::live() const {
  const std::lock_guard lock(mutex_);
  FakeCudaCounts counts;
  for (const auto& stream : streams_) counts.streams += !stream->destroyed;
  for (const auto& event : events_) counts.events += !event->destroyed;
  for (const auto& graph : graphs_) counts.graphs += !graph->destroyed;
  for (const auto& block : blocks_) {
    (block->pinned ? counts.pinned_blocks : counts.device_blocks) += !block->freed;
  }
  return counts;
}

std::map<std::string, int> FakeCudaRuntime::calls() const {
  const std::lock_guard lock(mutex_);
  return calls_;
}

int FakeCudaRuntime::kernels_run() const {
  const std::lock_guard lock(mutex_);
  return kernels_run_;
}

int FakeCudaRuntime::kernels() const {
  const std::lock_guard lock(mutex_);
  return kernels_;
}

std::vector<int> FakeCudaRuntime::stream_priorities() const {
  const std::lock_guard lock(mutex_);
  std::vector<int> priorities;
  for (const auto& stream : streams_) priorities.push_back(stream->priority);
  return priorities;
}

std::vector<std::optional<int>> FakeCudaRuntime::pinned_nodes() const {
  const std::lock_guard lock(mutex_);
  return pinned_nodes_;
}

int FakeCudaRuntime::fault_places() const {
  const std::lock_guard lock(mutex_);
  return fault_places_;
}

CudaStatus FakeCudaRuntime::make_block(void*& memory, std::size_t bytes, bool pinned) {
  if (busy()) accuse("memory is allocated while a stream has work");
  auto block = std::make_unique<Block>();
  block->bytes = bytes;
  block->pinned = pinned;
  if (pinned) pinned_nodes_.push_back(NumaPolicy::preferred());
  const int file = memfd_create("device memory", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) throw std::bad_alloc();
  const auto map = [&](int protection) {
    void* address = mmap(nullptr, bytes, protection, MAP_SHARED, file, 0);
    if (address == MAP_FAILED) throw std::bad_alloc();
    return static_cast<std::byte*>(address);
  };
  block->side = map(PROT_READ | PROT_WRITE);
  // The same bytes once more, where nobody may touch them, or those who may say so.
  block->address = pinned ? block->side
                          : map(settings_.host_reaches_device ? PROT_READ | PROT_WRITE : PROT_NONE);
  close(file);
  std::memset(block->side, 0xFF, bytes);
  memory = block->address;
  blocks_.push_back(std::move(block));
  return CudaStatus::Success;
}

CudaStatus FakeCudaRuntime::free_block(std::unique_lock<std::mutex>& lock, void* memory,
                                       bool pinned, const std::string& call) {
  if (busy() && !failed_) accuse(call + " while a stream has work");
  done_.wait(lock, [&] {
    return std::ranges::none_of(streams_, [](const auto& stream) { return stream->running; });
  });
  Block* const block = block_of(memory, 0, pinned, "what is given to " + call);
  if (block == nullptr) return keep(invalid_value);
  if (faulty(CudaFault::LeakedMemory)) return CudaStatus::Success;
  std::memset(block->side, 0xFF, block->bytes);
  if (pinned) mprotect(block->side, block->bytes, PROT_NONE);
  block->freed = true;
  return CudaStatus::Success;
}

void FakeCudaRuntime::move_bytes(Block* to, std::size_t to_offset, Block* from,
                                 std::size_t from_offset, std::size_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    if (to->freed || from->freed) return accuse("a copy is under way when its memory is freed");
  }
  std::memcpy(to->side + to_offset, from->side + from_offset, bytes);
}

}  // namespace garonne::device
