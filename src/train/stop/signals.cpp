#include "train/stop/signals.hpp"

#include <array>
#include <atomic>
#include <csignal>

namespace garonne::train {
namespace {

constexpr std::array<int, 4> handled = {SIGHUP, SIGTERM, SIGINT, SIGUSR1};  // USR1 last
// Handlers have no arguments of ours; lock-free atomics are what they may touch.
std::atomic<int> requested{0};
std::atomic<bool> by_launcher{false};
std::atomic<bool> interrupted{false};
std::array<struct sigaction, handled.size()> former;

void note_request(int signal) {
  const bool urgent = by_launcher && signal != SIGUSR1;
  const int request = static_cast<int>(urgent ? StopRequest::AtOnce : StopRequest::AfterStep);
  if (request > requested) requested = request;
  if (signal != SIGINT || by_launcher) return;
  if (interrupted.exchange(true)) {
    struct sigaction plain {};
    plain.sa_handler = SIG_DFL;
    sigaction(SIGINT, &plain, nullptr);
    raise(SIGINT);  // acts when this handler returns
  }
}

}  // namespace

SignalGuard::SignalGuard(bool launched) {
  requested = 0;
  by_launcher = launched;
  interrupted = false;
  struct sigaction action {};
  action.sa_handler = note_request;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  for (std::size_t i = 0; i < handled.size(); ++i) {
    sigaction(handled[i], nullptr, &former[i]);
    if (handled[i] == SIGHUP && former[i].sa_handler == SIG_IGN) continue;
    sigaction(handled[i], &action, nullptr);
  }
}

SignalGuard::~SignalGuard() {
  // A warning before a time limit may come when all is saved and the process about to end.
  if (former.back().sa_handler == SIG_DFL) former.back().sa_handler = SIG_IGN;
  for (std::size_t i = 0; i < handled.size(); ++i) sigaction(handled[i], &former[i], nullptr);
}

StopRequest SignalGuard::request() const {
  return static_cast<StopRequest>(requested.load());
}

}  // namespace garonne::train
