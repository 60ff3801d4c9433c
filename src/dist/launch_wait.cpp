#include "dist/launch_wait.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "base/awake_time.hpp"
#include "base/blocked_signals.hpp"
#include "base/error.hpp"
#include "dist/pending_operation.hpp"

namespace garonne::dist {
namespace {

constexpr double between_looks = 5;
// Who does not speak for its host ends the job later, so that one line says why.
constexpr double grace = 5;

const char* state_text(HostRank::State state) {
  return state == HostRank::State::Stopped
             ? " was stopped"
             : " is in a call that nothing interrupts, as of a file system that does not answer";
}

std::string ranks_text(const std::vector<HostRank>& ranks) {
  std::string text;
  for (const HostRank& one : ranks) {
    if (one.state == HostRank::State::Awake) continue;
    text += (text.empty() ? "rank " : "; rank ") + std::to_string(one.rank) + " (process " +
            std::to_string(one.process) + " of this host)" + state_text(one.state);
  }
  return text.empty() ? "no other rank of this host was stopped; one elsewhere is missing, or the "
                        "launcher or the network hangs"
                      : text;
}

}  // namespace

std::string LaunchWait::message(const std::string& in, const std::string& why) const {
  return place_ + " " + CommunicationError(in, why).what();
}

std::string LaunchWait::ended_by(double seconds, const std::string& in, double limit) {
  if (seconds < last_) {  // another wait
    next_look_ = silence / 2;
    next_line_ = first_line;
    stopped_since_ = -1;
  }
  last_ = seconds;
  if (seconds < std::min(next_look_, next_line_)) return {};
  next_look_ = seconds + between_looks;
  const std::vector<HostRank> ranks = looks_();
  const bool speaks = std::ranges::none_of(ranks, [&](const HostRank& one) {
    return one.rank < rank_ && one.state == HostRank::State::Awake;
  });
  const bool stopped = std::ranges::any_of(
      ranks, [](const HostRank& one) { return one.state == HostRank::State::Stopped; });
  const std::string found = ranks_text(ranks);
  // Not by one look: a job that was stopped as a whole goes on rank after rank.
  if (!stopped) stopped_since_ = -1;
  if (stopped && stopped_since_ < 0) stopped_since_ = seconds;
  const double allowed = speaks ? 0 : grace;
  if (stopped && seconds >= silence + allowed && seconds > stopped_since_) return found;
  if (limit > 0 && seconds >= limit + allowed) {
    return "it has not come back within " + std::to_string(static_cast<long>(limit)) + " s; " +
           found;
  }
  if (seconds < next_line_) return {};
  next_line_ += first_line;
  if (!speaks) return {};
  std::fprintf(stderr, "%s waiting for %.0f s in %s: %s\n", place_.c_str(), seconds, in.c_str(),
               found.c_str());
  std::fflush(stderr);
  return {};
}

WatchedCall::WatchedCall(LaunchWait& wait, std::string call, double limit)
    : wait_(wait), call_(std::move(call)), limit_(limit) {
  thread_ = std::thread([this] {
    block_all_signals();
    watch();
  });
}

WatchedCall::~WatchedCall() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  returned_.notify_all();
  thread_.join();
}

void WatchedCall::watch() {
  AwakeTime waited;
  std::unique_lock lock(mutex_);
  while (!returned_.wait_for(lock, wait_watched_every, [&] { return over_; })) {
    const std::string why = wait_.ended_by(waited.seconds(), call_, limit_);
    if (why.empty()) continue;
    // Nothing else ends a call of MPI, and only the launcher can end the others.
    std::fprintf(stderr, "%s\n", wait_.message(call_, why).c_str());
    std::fflush(stderr);
    std::_Exit(static_cast<int>(ExitCode::Communication));
  }
}

}  // namespace garonne::dist
