// What watches operations of NCCL while nobody asks about them.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <thread>

#include "base/awake_time.hpp"
#include "base/error.hpp"
#include "dist/nccl_transport.hpp"
#include "dist/session.hpp"
#include "dist/watched_wait.hpp"

namespace garonne::dist {
namespace {

constexpr std::chrono::milliseconds looks_every{100};
// A call that has lasted so long waits, too.
constexpr std::chrono::seconds long_call{1};

}  // namespace

void NcclTransport::watch() {
  calls_.set_device();
  // Each operation that the device waits for is a wait of its own.
  std::optional<WatchedWait> wait;
  std::optional<Clock::time_point> since;
  AwakeTime waited;
  std::unique_lock lock(watch_mutex_);
  while (!ending_.wait_for(lock, looks_every, [&] { return ends_; })) {
    look();
    const auto before = since;
    since = waits_since(Clock::now(), before);
    if (since != before) {
      wait.reset();
      waited.restart();
      if (since) wait.emplace(session_);
    }
    if (!wait) continue;
    try {
      wait->lasts(waited.seconds(), false);
    } catch (const CommunicationError& error) {
      end_with(error);
    }
  }
}

// Of the device, for other members and for nothing else; of a graph, when it should be at its end.
// `before`, the last answer, where the lanes are held just now.
std::optional<NcclTransport::Clock::time_point> NcclTransport::waits_since(
    Clock::time_point now, std::optional<Clock::time_point> before) {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) {
    const Clock::time_point held{Clock::duration(held_since_.load())};
    return held != Clock::time_point() && now - held > long_call ? held : before;
  }
  if (failure_ || recording_) return std::nullopt;
  if (replay_) {
    const auto ends = replay_->since + std::chrono::duration_cast<Clock::duration>(
                                           std::chrono::duration<double>(replay_->own_seconds));
    return ends < now ? std::optional(ends) : std::nullopt;
  }
  std::optional<Clock::time_point> first;
  for_each_lane([&](NcclLane& lane) {
    if (const auto since = lane.holds_up_since(now)) first = std::min(first.value_or(now), *since);
  });
  return first;
}

void NcclTransport::look() {
  const Clock::time_point now = Clock::now();
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) {
    // Read once: a call may begin or end meanwhile.
    const Clock::rep since = held_since_.load();
    const double limit = calls_.limit_seconds();
    if (limit == 0 || since == 0 ||
        now - Clock::time_point(Clock::duration(since)) <
            std::chrono::duration<double>(2 * limit)) {
      return;
    }
    session_.abort(ExitCode::Communication,
                   fmt::format("NCCL for {}: a call does not return", group_));
  }
  if (failure_) {
    if (now - failed_ > std::chrono::duration<double>(parts_.grace_seconds)) {
      session_.abort(ExitCode::Communication, failure_text_);
    }
    return;
  }
  look_at_lanes(now);
}

void NcclTransport::look_at_lanes(Clock::time_point now) {
  for_each_lane([&](NcclLane& lane) {
    if (!recording_) lane.look(now);
    if (const auto trouble = lane.trouble(now)) fail(*trouble, now);
  });
  if (!replay_ || calls_.limit_seconds() == 0 ||
      std::chrono::duration<double>(now - replay_->since).count() <=
          calls_.limit_seconds() + replay_->own_seconds) {
    return;
  }
  fail(CommunicationError(replay_->activity,
                          fmt::format("not complete after {} and the time that it takes; a rank "
                                      "of them has stopped, or does something else",
                                      describe_limit(calls_.limit_seconds()))),
       now);
}

void NcclTransport::fail(const CommunicationError& trouble, Clock::time_point now) {
  if (failure_) return;
  failure_text_ = trouble.what();
  failure_ = std::make_exception_ptr(trouble);
  failed_ = now;
}

// As fail(), also where a call that does not return holds the lanes.
void NcclTransport::end_with(const CommunicationError& error) {
  const Clock::time_point begin = Clock::now();
  const auto grace = std::chrono::duration<double>(parts_.grace_seconds);
  for (;;) {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (lock.owns_lock()) return fail(error, begin);
    if (Clock::now() - begin > grace) session_.abort(error.code(), error.what());
    std::this_thread::sleep_for(looks_every);
  }
}

void NcclTransport::stop_watching() {
  {
    const std::lock_guard lock(watch_mutex_);
    ends_ = true;
  }
  ending_.notify_all();
  if (watch_.joinable()) watch_.join();
}

}  // namespace garonne::dist
