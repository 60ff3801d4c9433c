#include "device/cuda_device.hpp"

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "base/seconds.hpp"
#include "device/cuda_pause.hpp"
#include "device/lane_error.hpp"
#include "device/numa_policy.hpp"

namespace garonne::device {
namespace {

bool moves_between_tiers(Lane lane) {
  return lane == Lane::CopyOut || lane == Lane::CopyIn;
}

}  // namespace

bool asked_for_synchronous(const char* value) {
  const std::string_view text = value == nullptr ? "" : value;
  if (text.empty() || text == "0") return false;
  if (text == "1") return true;
  throw ConfigError("GARONNE_SYNCHRONOUS", std::string(text),
                    "1 waits for each piece of work on a GPU, 0 does not");
}

// Delegated to, so that the destructor gives back what a start that fails has made.
CudaDevice::CudaDevice(CudaRuntime& runtime, const CudaSettings& settings, Unstarted)
    : ThreadedDevice(
          {.longest_wait_seconds = settings.longest_wait_seconds, .compute_thread = true}),
      runtime_(runtime),
      settings_(settings),
      check_(runtime, clock(), settings.synchronous),
      plain_events_(std::make_unique<CudaEvents>(check_, false)),
      timed_events_(std::make_unique<CudaEvents>(check_, true)),
      functions_(std::make_unique<CudaHostFunctions>(check_, clock())) {}

CudaDevice::CudaDevice(CudaRuntime& runtime, const CudaSettings& settings)
    : CudaDevice(runtime, settings, Unstarted{}) {
  start();
}

CudaDevice::~CudaDevice() {
  shut_down();
}

void CudaDevice::start() {
  const std::string activity = "start of the device";
  check_(runtime_.set_device(settings_.ordinal), "cudaSetDevice", Lane::Compute, activity);
  int highest = 0;
  check_(runtime_.priorities(lowest_priority_, highest), "cudaDeviceGetStreamPriorityRange",
         Lane::Compute, activity);
  std::vector<Lane> lanes = {Lane::Compute, Lane::CopyOut, Lane::CopyIn};
  if (settings_.communication_streams) {
    lanes.push_back(Lane::Message);
    lanes.push_back(Lane::Collective);
  }
  for (const Lane lane : lanes) {
    const int priority = lane == Lane::Compute ? highest : lowest_priority_;
    streams_[lane_index(lane)] =
        std::make_unique<CudaLane>(check_, *plain_events_, *timed_events_, lane, priority);
  }
  void* words = nullptr;
  check_(runtime_.allocate_pinned(words, lane_count * sizeof(std::uint32_t)), "cudaHostAlloc",
         Lane::Compute, activity);
  words_ = static_cast<std::uint32_t*>(words);
  std::memset(words_, 0, lane_count * sizeof(std::uint32_t));
  // A wait that is over tells whether there can be others.
  const CudaStatus status = runtime_.wait_value(stream_of(Lane::Compute)->stream(), words_, 0);
  if (status == cuda_not_supported) {
    std::uint32_t* const unused = std::exchange(words_, nullptr);
    check_(runtime_.free_pinned(unused), "cudaFreeHost", Lane::Compute, activity);
  } else {
    check_(status, "cuStreamWaitValue32", Lane::Compute, activity);
  }
  wait(record(Lane::Compute, activity));
}

MemoryFacts CudaDevice::memory() const {
  std::size_t free = 0;
  std::size_t total = 0;
  check_(runtime_.memory_info(free, total), "cudaMemGetInfo", Lane::Compute, "facts of its memory");
  return {static_cast<std::int64_t>(total), static_cast<std::int64_t>(free)};
}

CudaLane* CudaDevice::stream_of(Lane lane) const {
  return streams_[lane_index(lane)].get();
}

Queue CudaDevice::queue(Lane lane) const {
  const CudaLane* stream = stream_of(lane);
  if (stream == nullptr) return {DeviceKind::Cpu, nullptr, 1};
  expect(!moves_between_tiers(lane),
         fmt::format("kernels for the {} lane, which copies", to_string(lane)));
  return {DeviceKind::Cuda, stream->stream(), 0};
}

Mark CudaDevice::record(Lane lane, const std::string& activity, bool timed) {
  const Mark mark = next_mark(lane);
  if (!clock().over()) stream_of(lane)->record(mark.number, activity, timed);
  return mark;
}

// Of a lane that takes kernels, nobody but its stream knows what was put there.
Mark CudaDevice::mark(Lane lane) {
  if (stream_of(lane) == nullptr || moves_between_tiers(lane)) return ThreadedDevice::mark(lane);
  return record(lane, "kernels without a name");
}

Mark CudaDevice::launched(Lane lane, const std::string& activity) {
  expect(stream_of(lane) != nullptr && !moves_between_tiers(lane),
         fmt::format("{}: kernels on the {} lane", activity, to_string(lane)));
  check_(runtime_.last_error(), "cudaGetLastError", lane, activity);
  return end_of_work(lane, activity);
}

Mark CudaDevice::end_of_work(Lane lane, const std::string& activity) {
  const Mark mark = record(lane, activity);
  if (settings_.synchronous) hold(mark);
  return mark;
}

// Throws no earlier failure: what follows one is put, and dropped.
void CudaDevice::follow(Lane stream, Mark earlier, const std::string& activity) {
  check(earlier);
  if (stream == earlier.lane) return;
  const CudaStream native = stream_of(stream)->stream();
  if (CudaLane* const lane = stream_of(earlier.lane)) {
    if (!lane->has(earlier.number) || lane->reached(earlier.number)) return;
    check_(runtime_.wait_event(native, lane->event(earlier.number).get()), "cudaStreamWaitEvent",
           stream, activity);
    return;
  }
  const bool there = clock().ends(earlier, std::chrono::seconds(0));
  if (there) return;
  expect_no_capture("a wait for a thread");
  if (words_ != nullptr) {
    check_(runtime_.wait_value(native, words_ + lane_index(earlier.lane),
                               static_cast<std::uint32_t>(earlier.number)),
           "cuStreamWaitValue32", stream, activity);
  } else if (!clock().ends(earlier, longest_wait())) {
    throw_waited_too_long(earlier.lane, activity_of(earlier.lane));
  }
}

void CudaDevice::fork(Lane lane, std::span<const Mark> after, const std::string& activity) {
  if (lane != Lane::Compute) follow(lane, mark(Lane::Compute), activity);
  for (const Mark earlier : after) follow(lane, earlier, activity);
}

void CudaDevice::order(Lane later, Mark earlier) {
  check(earlier);
  clock().reached({});  // throws what failed
  const std::string activity = fmt::format("order after the {} lane", to_string(earlier.lane));
  if (stream_of(later) == nullptr) {
    run_on_thread(later, nullptr, activity, {&earlier, 1});
    return;
  }
  follow(later, earlier, activity);
  record(later, activity);
}

Mark CudaDevice::put_copy(Lane lane, Span to, Span from, std::string activity,
                          std::span<const Mark> after) {
  const CudaLane* stream = stream_of(lane);
  if (stream == nullptr) {
    const auto move = [to, from] {
      if (to.bytes > 0) std::memcpy(to.data, from.data, static_cast<std::size_t>(to.bytes));
    };
    return run_on_thread(lane, move, std::move(activity), after);
  }
  for (const Span& span : {to, from}) {
    expect(span.bytes == 0 || span.tier != Tier::Host || (host_tier_ && host_tier_->contains(span)),
           fmt::format("{}: {} bytes of host memory that is not of the device's host tier are not "
                       "pinned, and a copy of them would hold the host",
                       activity, span.bytes));
  }
  for (const Mark mark : after) check(mark);
  if (clock().over()) return next_mark(lane);
  fork(lane, after, activity);
  if (to.bytes > 0) {
    const CudaCopy direction = lane == Lane::CopyOut  ? CudaCopy::DeviceToHost
                               : lane == Lane::CopyIn ? CudaCopy::HostToDevice
                                                      : CudaCopy::DeviceToDevice;
    check_(runtime_.copy(to.data, from.data, static_cast<std::size_t>(to.bytes), direction,
                         stream->stream()),
           "cudaMemcpyAsync", lane, activity);
  }
  return end_of_work(lane, activity);
}

Mark CudaDevice::put_run(Lane lane, std::function<void()> work, std::string activity,
                         std::span<const Mark> after) {
  const CudaLane* stream = stream_of(lane);
  if (stream == nullptr) return run_on_thread(lane, std::move(work), std::move(activity), after);
  expect_no_capture("host work");
  for (const Mark mark : after) check(mark);
  if (clock().over()) return next_mark(lane);
  fork(lane, after, activity);
  functions_->launch(stream->stream(), lane, std::move(work), activity);
  return end_of_work(lane, activity);
}

ThreadCopies& CudaDevice::thread_copies(Lane lane) {
  expect(stream_of(lane) == nullptr,
         fmt::format("copies by a thread of the {} lane, which has none", to_string(lane)));
  std::unique_ptr<CudaThreadCopies>& copies = thread_copies_[lane_index(lane)];
  if (copies == nullptr) {
    const auto is_pinned = [this](Span span) { return host_tier_ && host_tier_->contains(span); };
    copies = std::make_unique<CudaThreadCopies>(check_, clock(), *plain_events_, settings_.ordinal,
                                                lane, lowest_priority_, is_pinned);
  }
  return *copies;
}

Mark CudaDevice::run_on_thread(Lane lane, std::function<void()> work, std::string activity,
                               std::span<const Mark> after) {
  expect_no_capture("work of a thread");
  struct Event {
    CudaEvents::Owned event;
    Lane lane;
    std::string activity;
  };
  std::vector<Event> events;
  std::vector<Mark> threads;
  const auto follows = [&](Mark earlier) {
    check(earlier);
    CudaLane* const stream = stream_of(earlier.lane);
    if (stream == nullptr) {
      threads.push_back(earlier);
    } else if (stream->has(earlier.number) && !stream->reached(earlier.number)) {
      events.push_back(
          {stream->event(earlier.number), earlier.lane, stream->activity(earlier.number)});
    }
  };
  for (const Mark earlier : after) follows(earlier);
  // No work, no fork: what only orders a lane does not bring Compute in.
  if (work) follows(mark(Lane::Compute));
  const Mark mine{lane, ThreadedDevice::mark(lane).number + 1};
  return put(
      lane,
      [this, mine, events = std::move(events), work = std::move(work)]() mutable {
        for (Event& each : events) {
          if (!follow_event(each.event, each.lane, each.activity)) return;
          each.event.reset();
        }
        if (work) work();
        work = nullptr;  // what it captured goes before a stream goes on
        tell_streams(mine);
      },
      std::move(activity), std::move(threads));
}

bool CudaDevice::follow_event(const CudaEvents::Owned& event, Lane lane,
                              const std::string& activity) {
  check_(runtime_.set_device(settings_.ordinal), "cudaSetDevice", lane, activity);
  for (int turn = 0;; ++turn) {
    if (clock().over()) return false;
    const CudaStatus status = runtime_.query_event(event.get());
    if (status != CudaStatus::NotReady) {
      check_.late(status, "cudaEventQuery", lane, activity);
      return true;
    }
    pause_polling(turn);
  }
}

void CudaDevice::tell_streams(Mark reached) {
  if (words_ == nullptr) return;
  std::atomic_ref(words_[lane_index(reached.lane)])
      .store(static_cast<std::uint32_t>(reached.number), std::memory_order_release);
}

bool CudaDevice::done(Mark mark) {
  CudaLane* const stream = stream_of(mark.lane);
  if (stream == nullptr) return ThreadedDevice::done(mark);
  check(mark);
  clock().reached({});  // throws what failed
  const bool there = stream->reached(mark.number);
  if (capturing_ && !there) expect_no_capture("a question how far work is");
  return there;
}

void CudaDevice::wait(Mark mark) {
  if (stream_of(mark.lane) == nullptr) {
    ThreadedDevice::wait(mark);
    return;
  }
  check(mark);
  hold(mark);
  clock().reached({});  // throws what failed
}

void CudaDevice::hold(Mark mark) {
  CudaLane* const stream = stream_of(mark.lane);
  if (capturing_ && !stream->reached(mark.number)) expect_no_capture("a wait of the host");
  const auto start = std::chrono::steady_clock::now();
  for (int turn = 0; !clock().over() && !stream->reached(mark.number); ++turn) {
    if (seconds_since(start) > longest_wait().count()) {
      throw_waited_too_long(mark.lane, stream->activity());
    }
    pause_polling(turn);
  }
}

Mark CudaDevice::timed_mark(Lane lane) {
  if (stream_of(lane) == nullptr) return ThreadedDevice::timed_mark(lane);
  expect_no_capture("a timed mark");
  const std::string activity = "timed mark";
  if (!clock().over()) fork(lane, {}, activity);
  const Mark mark = record(lane, activity, true);
  // Or what fails next would be told by its name.
  if (settings_.synchronous) hold(mark);
  return mark;
}

double CudaDevice::seconds(Mark from, Mark to) const {
  const CudaLane* const begin = stream_of(from.lane);
  const CudaLane* const end = stream_of(to.lane);
  if (begin == nullptr && end == nullptr) return ThreadedDevice::seconds(from, to);
  expect(begin != nullptr && end != nullptr,
         "seconds between a stream and a thread, whose clocks are not one");
  if (from.lane == to.lane && from.number > to.number) return -seconds(to, from);
  const CudaEvent first = begin->moment(from.number);
  const CudaEvent last = end->moment(to.number);
  expect(first != nullptr && last != nullptr, "seconds between marks that are not timed");
  float milliseconds = 0;
  const CudaStatus status = runtime_.elapsed(milliseconds, first, last);
  expect(status != CudaStatus::NotReady, "seconds between marks that are not reached");
  check_.late(status, "cudaEventElapsedTime", to.lane, "timed mark");
  return static_cast<double>(milliseconds) * 1e-3;
}

void CudaDevice::forget_times() {
  ThreadedDevice::forget_times();
  for (const auto& stream : streams_) {
    if (stream) stream->forget_times();
  }
}

TierMemory& CudaDevice::reserve(Tier tier, std::int64_t limit_bytes, std::int64_t exact_bytes) {
  expect_no_capture("memory that is reserved");
  std::unique_ptr<CudaTier>& place = tier == Tier::Device ? device_tier_ : host_tier_;
  expect(!place, fmt::format("a second {} tier", to_string(tier)));
  std::function<void(Span)> spoil_blocks;
  if (settings_.spoil_blocks && tier == Tier::Device) {
    spoil_blocks = [this](Span block) { spoil(block); };
  }
  const NumaPolicy near(tier == Tier::Host ? settings_.numa_node : std::nullopt);
  place =
      std::make_unique<CudaTier>(check_, tier, limit_bytes, exact_bytes, std::move(spoil_blocks));
  if (tier == Tier::Host) numa_refusal_ = near.refusal();
  return place->blocks();
}

std::shared_ptr<TierMemory> CudaDevice::reserved(Tier tier) const {
  const auto& place = tier == Tier::Device ? device_tier_ : host_tier_;
  expect(place != nullptr, fmt::format("no {} tier is reserved", to_string(tier)));
  return place->shared_blocks();
}

void CudaDevice::release(Tier tier) {
  const std::shared_ptr<TierMemory> blocks = reserved(tier);
  expect(blocks->live_bytes() == 0,
         fmt::format("{} bytes of the {} tier that is given back are in use", blocks->live_bytes(),
                     to_string(tier)));
  std::unique_ptr<CudaTier>& place = tier == Tier::Device ? device_tier_ : host_tier_;
  std::vector<std::string> failures;
  place->destroy(failures);
  place.reset();
  if (failures.empty()) return;
  throw LaneError(Lane::Compute, fmt::format("release of the {} tier", to_string(tier)),
                  ExitCode::Refused, failures.front());
}

std::int64_t CudaDevice::reach_bytes(Tier tier) const {
  const auto& place = tier == Tier::Device ? device_tier_ : host_tier_;
  return place ? place->reach_bytes() : 0;
}

void CudaDevice::spoil(Span block) {
  if (clock().over()) return;
  check_(runtime_.fill(block.data, nan_pattern, static_cast<std::size_t>(block.bytes),
                       stream_of(Lane::Compute)->stream()),
         "cudaMemsetAsync", Lane::Compute, "a block without contents");
}

void CudaDevice::close() {
  shut_down();
  if (end_failures_.empty()) return;
  throw LaneError(Lane::Compute, "end of the device", ExitCode::Refused, end_failures_.front());
}

void CudaDevice::end() noexcept {
  drop_capture();
  std::vector<Mark> threads;
  for (std::size_t lane = 0; lane < streams_.size(); ++lane) {
    if (!streams_[lane]) threads.push_back(ThreadedDevice::mark(static_cast<Lane>(lane)));
  }
  // A failure that a stream comes to is found when it is shut down.
  if (!ended_ && clock().follow(threads)) static_cast<void>(wait_for_streams());
  shut_down();
}

void CudaDevice::shut_down() {
  if (ended_) return;
  drop_capture();
  ended_ = true;
  stop();
  if (words_ != nullptr) {
    // Streams that wait for what threads will not do any more.
    for (std::size_t lane = 0; lane < streams_.size(); ++lane) {
      tell_streams(ThreadedDevice::mark(static_cast<Lane>(lane)));
    }
  }
  if (!wait_for_streams()) {
    abandon();
    return;
  }
  functions_->drop();
  destroy_graphs();
  for (CudaLane* const stream : all_streams()) stream->destroy(end_failures_);
  for (auto& stream : streams_) stream.reset();
  for (auto& copies : thread_copies_) copies.reset();
  plain_events_->destroy(end_failures_);
  timed_events_->destroy(end_failures_);
  if (words_ != nullptr) {
    const CudaStatus status = runtime_.free_pinned(std::exchange(words_, nullptr));
    if (status != CudaStatus::Success) {
      end_failures_.push_back(fmt::format("cudaFreeHost: {}", runtime_.error_text(status)));
    }
  }
  for (auto* tier : {device_tier_.get(), host_tier_.get()}) {
    if (tier != nullptr) tier->destroy(end_failures_);
  }
}

std::vector<CudaLane*> CudaDevice::all_streams() {
  std::vector<CudaLane*> all;
  for (const auto& stream : streams_) {
    if (stream) all.push_back(stream.get());
  }
  for (const auto& copies : thread_copies_) {
    if (copies) all.push_back(&copies->stream());
  }
  return all;
}

bool CudaDevice::wait_for_streams() {
  const auto start = std::chrono::steady_clock::now();
  for (CudaLane* const stream : all_streams()) {
    for (int turn = 0; !stream->idle(end_failures_); ++turn) {
      if (seconds_since(start) > settings_.longest_end_seconds) {
        end_failures_.push_back(fmt::format(
            "{}: not done after a wait of {} s; streams, events and memory are left as they are",
            stream->activity(), settings_.longest_end_seconds));
        return false;
      }
      pause_polling(turn);
    }
  }
  return true;
}

// A stream may still come to what it was given, so nothing of it may go. Left to the end of the
// process.
void CudaDevice::abandon() {
  functions_->abandon();
  static_cast<void>(functions_.release());
  for (auto& stream : streams_) static_cast<void>(stream.release());
  for (auto& copies : thread_copies_) static_cast<void>(copies.release());
  graphs_.clear();
  static_cast<void>(plain_events_.release());
  static_cast<void>(timed_events_.release());
  static_cast<void>(device_tier_.release());
  static_cast<void>(host_tier_.release());
}

}  // namespace garonne::device
