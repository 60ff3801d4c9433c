#include "kernels/session.hpp"

#include "base/error.hpp"
#include "kernels/cpu/loops.hpp"
#include "kernels/cpu/parallel.hpp"

#include <algorithm>
#include <atomic>
#include <string>

namespace garonne::kernels {

namespace {

// Kokkos itself is one per process, and so are these.
std::atomic<bool> session_was_made = false;
std::atomic<int> threads_in_use = 1;

}  // namespace

int threads_of(const Queue& queue) {
  const int session = threads_in_use.load(std::memory_order_relaxed);
  return queue.threads > 0 ? std::min(queue.threads, session) : session;
}

KernelSession::KernelSession(int threads) : most_threads_(threads) {
  if (threads < 1) {
    throw ConfigError("threads", std::to_string(threads),
                      "a kernel session needs at least one thread");
  }
  expect(!session_was_made.exchange(true), "a second KernelSession in one process");
  // Warnings off: Kokkos complains about an unset OMP_PROC_BIND, but several ranks share a node and
  // the launcher binds them.
  Kokkos::initialize(
      Kokkos::InitializationSettings().set_num_threads(threads).set_disable_warnings(true));
  threads_in_use = threads;
}

KernelSession::~KernelSession() {
  threads_in_use = 1;
  Kokkos::finalize();
}

int KernelSession::threads() const {
  return threads_in_use.load(std::memory_order_relaxed);
}

void KernelSession::use_threads(int threads) {
  if (threads < 1 || threads > most_threads_) {
    throw ConfigError("threads", std::to_string(threads),
                      "the session has " + std::to_string(most_threads_));
  }
  threads_in_use = threads;
}

const char* instruction_set() {
  return loops().name;
}

}  // namespace garonne::kernels
