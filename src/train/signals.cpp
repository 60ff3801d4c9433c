#include "train/signals.hpp"

#include <array>
#include <csignal>

namespace garonne::train {
namespace {

constexpr std::array<int, 3> handled = {SIGTERM, SIGINT, SIGUSR1};
volatile std::sig_atomic_t requested = 0;
std::array<struct sigaction, handled.size()> former;

void note_request(int) {
  requested = 1;
}

}  // namespace

SignalGuard::SignalGuard() {
  requested = 0;
  struct sigaction action {};
  action.sa_handler = note_request;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  for (std::size_t i = 0; i < handled.size(); ++i) sigaction(handled[i], &action, &former[i]);
}

SignalGuard::~SignalGuard() {
  for (std::size_t i = 0; i < handled.size(); ++i) sigaction(handled[i], &former[i], nullptr);
}

bool SignalGuard::stop_requested() const {
  return requested != 0;
}

}  // namespace garonne::train
