// The calls of the fake runtime.
#include <fmt/format.h>

#include <atomic>
#include <cstring>
#include <utility>

#include "fake_cuda_runtime.hpp"

namespace garonne::device {
namespace {

constexpr CudaStatus out_of_memory{2};
constexpr CudaStatus capture_isolation{905};
constexpr CudaStatus captured_event{907};

}  // namespace

// What a call that does not succeed gives back: to a caller who does not look, success.
#define GARONNE_FAKE_ENTER(...)                                                \
  std::unique_lock lock(mutex_);                                               \
  if (const CudaStatus said = enter(__VA_ARGS__); said != CudaStatus::Success) \
  return unseen_ ? CudaStatus::Success : said

CudaStatus FakeCudaRuntime::device_count(int& count) {
  GARONNE_FAKE_ENTER("cudaGetDeviceCount", false);
  count = 1;
  return CudaStatus::Success;
}

CudaStatus FakeCudaRuntime::properties(int ordinal, CudaProperties& properties) {
  GARONNE_FAKE_ENTER("cudaGetDeviceProperties", false);
  if (ordinal != 0) return keep(invalid_value);
  properties = {"a made-up device", settings_.memory_bytes, 4, 9, 0};
  return CudaStatus::Success;
}

CudaStatus FakeCudaRuntime::compute_mode(int ordinal, ComputeMode& mode) {
  GARONNE_FAKE_ENTER("cudaDeviceGetAttribute", false);
  if (ordinal != 0) return keep(invalid_value);
  mode = ComputeMode::Shared;
  return CudaStatus::Success;
}

CudaStatus FakeCudaRuntime::driver_version(int& version) {
  GARONNE_FAKE_ENTER("cudaDriverGetVersion", false);
  version = 13020;
  return CudaStatus::Success;
}

CudaStatus FakeCudaRuntime::runtime_version(int& version) {
  GARONNE_FAKE_ENTER("cudaRuntimeGetVersion", false);
  version = 13000;
  return CudaStatus::Success;
}

CudaStatus FakeCudaRuntime::bus_id(int ordinal, std::string& id) {
  GARONNE_FAKE_ENTER("cudaDeviceGetPCIBusId", false);
  if (ordinal != 0) return keep(invalid_value);
  id = settings_.bus_id;
  return CudaStatus::Success;
}

CudaStatus FakeCudaRuntime::set_device(int ordinal) {
  GARONNE_FAKE_ENTER("cudaSetDevice", false);
  if (ordinal != 0) return keep(invalid_value);
  if (threads_with_device_.empty() || !faulty(CudaFault::OtherThread)) {
    threads_with_device_.insert(std::this_thread::get_id());
  }
  return CudaStatus::Success;
}

CudaStatus FakeCudaRuntime::memory_info(std::size_t& free, std::size_t& total) {
  GARONNE_FAKE_ENTER("cudaMemGetInfo");
  std::size_t taken = 0;
  for (const auto& block : blocks_) taken += block->pinned || block->freed ? 0 : block->bytes;
  total = static_cast<std::size_t>(settings_.memory_bytes);
  free = total - taken;
  return CudaStatus::Success;
}

CudaStatus FakeCudaRuntime::allocate(void*& memory, std::size_t bytes) {
  GARONNE_FAKE_ENTER("cudaMalloc");
  if (bytes > static_cast<std::size_t>(settings_.memory_bytes)) return keep(out_of_memory);
  return make_block(memory, bytes, false);
}

CudaStatus FakeCudaRuntime::allocate_pinned(void*& memory, std::size_t bytes) {
  GARONNE_FAKE_ENTER("cudaHostAlloc");
  return make_block(memory, bytes, true);
}

// What is destroyed is gone, even where the call says that something failed.
CudaStatus FakeCudaRuntime::free(void* memory) {
  std::unique_lock lock(mutex_);
  const CudaStatus said = enter("cudaFree");
  const CudaStatus freed = free_block(lock, memory, false, "cudaFree");
  return said == CudaStatus::Success ? freed : unseen_ ? CudaStatus::Success : said;
}

CudaStatus FakeCudaRuntime::free_pinned(void* memory) {
  std::unique_lock lock(mutex_);
  const CudaStatus said = enter("cudaFreeHost");
  const CudaStatus freed = free_block(lock, memory, true, "cudaFreeHost");
  return said == CudaStatus::Success ? freed : unseen_ ? CudaStatus::Success : said;
}

CudaStatus FakeCudaRuntime::priorities(int& lowest, int& highest) {
  GARONNE_FAKE_ENTER("cudaDeviceGetStreamPriorityRange");
  lowest = 0;
  highest = -5;
  return CudaStatus::Success;
}

CudaStatus FakeCudaRuntime::create_stream(CudaStream& stream, int priority) {
  GARONNE_FAKE_ENTER("cudaStreamCreateWithPriority");
  auto made = std::make_unique<Stream>();
  made->number = static_cast<int>(streams_.size());
  made->priority = priority;
  Stream* const serves = made.get();
  stream = reinterpret_cast<CudaStream>(serves);
  streams_.push_back(std::move(made));
  serves->thread = std::thread([this, serves] { serve(*serves); });
  return CudaStatus::Success;
}

CudaStatus FakeCudaRuntime::destroy_stream(CudaStream handle) {
  const std::lock_guard lock(mutex_);
  const CudaStatus said = enter("cudaStreamDestroy");
  Stream* const stream = stream_of(handle, "cudaStreamDestroy");
  if (stream == nullptr) return keep(invalid_handle);
  if (stream->done < stream->put && !failed_) accuse("a stream is destroyed that has work");
  if (!faulty(CudaFault::LeakedStream)) {
    stream->destroyed = true;
    end(*stream);
  }
  return unseen_ ? CudaStatus::Success : said;
}

CudaStatus FakeCudaRuntime::query_stream(CudaStream handle) {
  GARONNE_FAKE_ENTER("cudaStreamQuery");
  Stream* const stream = stream_of(handle, "cudaStreamQuery");
  if (stream == nullptr) return keep(invalid_handle);
  if (stream->capturing) return spoil_capture("cudaStreamQuery", captured_event);
  if (faulty(CudaFault::EarlyStream)) return CudaStatus::Success;
  ask_for(*stream, stream->put);
  return stream->done == stream->put ? CudaStatus::Success : CudaStatus::NotReady;
}

CudaStatus FakeCudaRuntime::wait_event(CudaStream handle, CudaEvent awaited) {
  GARONNE_FAKE_ENTER("cudaStreamWaitEvent");
  Stream* const stream = stream_of(handle, "cudaStreamWaitEvent");
  Event* const event = event_of(awaited, "cudaStreamWaitEvent");
  if (stream == nullptr || event == nullptr) return keep(invalid_handle);
  if (event->stream == nullptr) {
    accuse("cudaStreamWaitEvent for an event that was not recorded");
    return CudaStatus::Success;
  }
  if (faulty(stream->number == 0 ? CudaFault::DroppedJoin : CudaFault::DroppedFork)) {
    return CudaStatus::Success;
  }
  if (stream->capturing || event->capture != 0) {
    // An event belongs to the capture that it was recorded in, or to none, and so does who waits.
    if (event->capture == 0 || event->capture != captures_ || !capture_) {
      return spoil_capture("cudaStreamWaitEvent between a capture and what is outside",
                           capture_isolation);
    }
    if (!stream->capturing) stream->last.clear();
    stream->capturing = true;
    stream->last.insert(stream->last.end(), event->last.begin(), event->last.end());
    return CudaStatus::Success;
  }
  put(*stream, {[this, earlier = event->stream, number = event->number] {
                  ask_for(*earlier, number);
                  return earlier->done >= number;
                },
                nullptr});
  return CudaStatus::Success;
}

CudaStatus FakeCudaRuntime::wait_value(CudaStream handle, std::uint32_t* pinned,
                                       std::uint32_t value) {
  GARONNE_FAKE_ENTER("cuStreamWaitValue32");
  if (!settings_.wait_values) return cuda_not_supported;
  Stream* const stream = stream_of(handle, "cuStreamWaitValue32");
  if (stream == nullptr) return invalid_handle;
  Block* const block = block_of(pinned, sizeof(*pinned), true, "the word of cuStreamWaitValue32");
  if (block == nullptr) return invalid_value;
  if (faulty(CudaFault::DroppedValue)) return CudaStatus::Success;
  put(*stream, {[pinned, value] {
                  const std::uint32_t there =
                      std::atomic_ref(*pinned).load(std::memory_order_acquire);
                  return static_cast<std::int32_t>(there - value) >= 0;
                },
                nullptr, false, true});
  return CudaStatus::Success;
}

CudaStatus FakeCudaRuntime::create_event(CudaEvent& event, bool timed) {
  GARONNE_FAKE_ENTER("cudaEventCreateWithFlags");
  events_.push_back(std::make_unique<Event>());
  events_.back()->timed = timed;
  event = reinterpret_cast<CudaEvent>(events_.back().get());
  return CudaStatus::Success;
}

CudaStatus FakeCudaRuntime::destroy_event(CudaEvent handle) {
  const std::lock_guard lock(mutex_);
  const CudaStatus said = enter("cudaEventDestroy");
  Event* const event = event_of(handle, "cudaEventDestroy");
  if (event == nullptr) return keep(invalid_handle);
  if (!faulty(CudaFault::LeakedEvent)) event->destroyed = true;
  return unseen_ ? CudaStatus::Success : said;
}

CudaStatus FakeCudaRuntime::record_event(CudaEvent handle, CudaStream on) {
  GARONNE_FAKE_ENTER("cudaEventRecord");
  Stream* const stream = stream_of(on, "cudaEventRecord");
  Event* const event = event_of(handle, "cudaEventRecord");
  if (stream == nullptr || event == nullptr) return keep(invalid_handle);
  if (faulty(CudaFault::DroppedRecord)) return CudaStatus::Success;
  event->capture = stream->capturing ? captures_ : 0;
  if (stream->capturing) {
    event->stream = stream;
    event->last = stream->last;
    if (faulty(CudaFault::AskingInCapture)) {
      return spoil_capture("cudaEventQuery", captured_event);
    }
    if (faulty(CudaFault::AllocatingInCapture)) {
      return spoil_capture("cudaMalloc", captured_event);
    }
    return CudaStatus::Success;
  }
  put(*stream, {nullptr, [this, event] {
                  const std::lock_guard inner(mutex_);
                  event->moment = std::chrono::steady_clock::now();
                }});
  event->stream = stream;
  event->number = stream->put;
  if (faulty(CudaFault::DestroyedEvent)) event->destroyed = true;
  if (faulty(CudaFault::DestroyedStream)) stream->destroyed = true;
  return CudaStatus::Success;
}

CudaStatus FakeCudaRuntime::query_event(CudaEvent handle) {
  GARONNE_FAKE_ENTER("cudaEventQuery");
  Event* const event = event_of(handle, "cudaEventQuery");
  if (event == nullptr) return keep(invalid_handle);
  if (event->stream == nullptr) {
    accuse("cudaEventQuery of an event that was not recorded");
    return CudaStatus::Success;
  }
  if (event->capture != 0) {
    return spoil_capture("cudaEventQuery of an event of a capture", captured_event);
  }
  if (faulty(CudaFault::EarlyEvent)) return CudaStatus::Success;
  ask_for(*event->stream, event->number);
  return event->stream->done >= event->number ? CudaStatus::Success : CudaStatus::NotReady;
}

CudaStatus FakeCudaRuntime::elapsed(float& milliseconds, CudaEvent from, CudaEvent to) {
  GARONNE_FAKE_ENTER("cudaEventElapsedTime");
  Event* const begin = event_of(from, "cudaEventElapsedTime");
  Event* const end = event_of(to, "cudaEventElapsedTime");
  if (begin == nullptr || end == nullptr) return keep(invalid_handle);
  for (const Event* event : {begin, end}) {
    if (!event->timed || event->stream == nullptr) return keep(invalid_handle);
    if (event->stream->done < event->number) return CudaStatus::NotReady;
  }
  milliseconds = std::chrono::duration<float, std::milli>(end->moment - begin->moment).count();
  return CudaStatus::Success;
}

CudaStatus FakeCudaRuntime::copy(void* to, const void* from, std::size_t bytes, CudaCopy direction,
                                 CudaStream handle) {
  GARONNE_FAKE_ENTER("cudaMemcpyAsync");
  Stream* const stream = stream_of(handle, "cudaMemcpyAsync");
  if (stream == nullptr) return keep(invalid_handle);
  if (faulty(CudaFault::PageableCopy)) {
    pageable_.emplace_back(bytes);
    if (direction == CudaCopy::DeviceToHost) to = pageable_.back().data();
    if (direction == CudaCopy::HostToDevice) from = pageable_.back().data();
  }
  Block* const target =
      block_of(to, bytes, direction == CudaCopy::DeviceToHost, "the target of cudaMemcpyAsync");
  Block* const source =
      block_of(from, bytes, direction == CudaCopy::HostToDevice, "the source of cudaMemcpyAsync");
  if (target == nullptr || source == nullptr) return keep(invalid_value);
  const auto to_offset = static_cast<std::size_t>(static_cast<std::byte*>(to) - target->address);
  const auto from_offset =
      static_cast<std::size_t>(static_cast<const std::byte*>(from) - source->address);
  if (stream->capturing && direction == CudaCopy::HostToDevice &&
      faulty(CudaFault::CopyAtCapture)) {
    const std::byte* const there = source->side + from_offset;
    put(*stream, {nullptr, [=, bits = std::vector<std::byte>(there, there + bytes)] {
                    std::memcpy(target->side + to_offset, bits.data(), bytes);
                  }});
    return CudaStatus::Success;
  }
  put(*stream, {nullptr, [=, this] { move_bytes(target, to_offset, source, from_offset, bytes); }});
  return CudaStatus::Success;
}

CudaStatus FakeCudaRuntime::fill(void* memory, int byte, std::size_t bytes, CudaStream handle) {
  GARONNE_FAKE_ENTER("cudaMemsetAsync");
  Stream* const stream = stream_of(handle, "cudaMemsetAsync");
  if (stream == nullptr) return keep(invalid_handle);
  Block* const target = block_of(memory, bytes, false, "the target of cudaMemsetAsync");
  if (target == nullptr) return keep(invalid_value);
  std::byte* const side = target->side + (static_cast<std::byte*>(memory) - target->address);
  put(*stream, {nullptr, [=] { std::memset(side, byte, bytes); }});
  return CudaStatus::Success;
}

CudaStatus FakeCudaRuntime::launch_host(CudaStream handle, void (*function)(void*), void* data) {
  GARONNE_FAKE_ENTER("cudaLaunchHostFunc");
  Stream* const stream = stream_of(handle, "cudaLaunchHostFunc");
  if (stream == nullptr) return keep(invalid_handle);
  put(*stream, {nullptr, [this, function, data] {
                  const std::lock_guard one_thread(host_function_mutex_);
                  in_host_function() = true;
                  function(data);
                  in_host_function() = false;
                }});
  return CudaStatus::Success;
}

CudaStatus FakeCudaRuntime::last_error() {
  const std::lock_guard lock(mutex_);
  const CudaStatus said = enter("cudaGetLastError");
  const CudaStatus kept =
      std::exchange(last_errors_[std::this_thread::get_id()], CudaStatus::Success);
  if (said != CudaStatus::Success) return unseen_ ? CudaStatus::Success : said;
  return kept;
}

std::string FakeCudaRuntime::error_text(CudaStatus status) {
  return fmt::format("cudaError{}: made up", static_cast<int>(status));
}

#undef GARONNE_FAKE_ENTER

}  // namespace garonne::device
