#include "train/stop/signals.hpp"

#include <pthread.h>

#include <array>
#include <atomic>
#include <csignal>
#include <ctime>
#include <exception>

namespace garonne::train {
namespace {

constexpr std::array<int, 4> handled = {SIGHUP, SIGTERM, SIGINT, SIGUSR1};
// Handlers have no arguments of ours; lock-free atomics are what they may touch.
std::atomic<int> requested{0};
std::atomic<bool> by_launcher{false};
std::atomic<bool> interrupted{false};
std::array<struct sigaction, handled.size()> former;

void ignore(int signal) {
  struct sigaction action {};
  action.sa_handler = SIG_IGN;
  sigaction(signal, &action, nullptr);
}

bool would_end_the_process(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) == 0 && action.sa_handler == SIG_DFL;
}

sigset_t set_of_handled() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : handled) sigaddset(&set, signal);
  return set;
}

// Those that no thread has received.
void forget_pending() {
  const sigset_t set = set_of_handled();
  const timespec at_once{};
  while (sigtimedwait(&set, nullptr, &at_once) > 0) {
  }
}

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
  struct sigaction pipe {};
  sigaction(SIGPIPE, nullptr, &pipe);
  if (would_end_the_process(pipe)) ignore(SIGPIPE);
  const sigset_t set = set_of_handled();
  pthread_sigmask(SIG_BLOCK, &set, &former_mask_);
  thread_ = std::thread([this] { receive(); });
}

void SignalGuard::receive() {
  sigset_t others;
  sigfillset(&others);
  for (const int signal : handled) sigdelset(&others, signal);
  pthread_sigmask(SIG_SETMASK, &others, nullptr);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return ending_; });
}

SignalGuard::~SignalGuard() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
  forget_pending();
  // When all is saved and the process about to end a warning before a time limit may come, or the
  // launcher's TERM, for which it is enough that another rank has left with exit code 75.
  const bool all_is_well = std::uncaught_exceptions() == 0;
  for (std::size_t i = 0; i < handled.size(); ++i) {
    const bool may_come = handled[i] == SIGUSR1 || (all_is_well && handled[i] != SIGINT);
    if (may_come && would_end_the_process(former[i])) {
      ignore(handled[i]);
    } else {
      sigaction(handled[i], &former[i], nullptr);
    }
  }
  pthread_sigmask(SIG_SETMASK, &former_mask_, nullptr);
}

StopRequest SignalGuard::request() const {
  return static_cast<StopRequest>(requested.load());
}

}  // namespace garonne::train
