#include "kernels/session.hpp"

#include "base/error.hpp"
#include "kernels/cpu/loops.hpp"
#include "kernels/cpu/parallel.hpp"
#include "kernels/device/streams.hpp"

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <string>

#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

namespace garonne::kernels {

namespace {

// The pool of OpenMP is one per process, and so are these.
std::atomic<bool> session_was_made = false;
std::atomic<int> threads_of_pool = 1;
std::atomic<int> threads_in_use = 1;
// One region at a time: a second thread that opened one would start a second pool.
std::mutex pool_mutex;

// libgomp is not built with the thread sanitizer, which sees neither the fork nor the join of a
// team: what is released at one is acquired behind it.
char fork_of_team, join_of_team;

void release([[maybe_unused]] char& place) {
#ifdef __SANITIZE_THREAD__
  __tsan_release(&place);
#endif
}

void acquire([[maybe_unused]] char& place) {
#ifdef __SANITIZE_THREAD__
  __tsan_acquire(&place);
#endif
}

}  // namespace

int threads_of(const Queue& queue) {
  const int session = threads_in_use.load(std::memory_order_relaxed);
  return queue.threads > 0 ? std::min(queue.threads, session) : session;
}

void run_pieces(std::int64_t pieces, void (*piece)(const void* context, std::int64_t i),
                const void* context) {
  const std::lock_guard<std::mutex> lock(pool_mutex);
  // Always all of the pool: a team of another size would be made anew.
  const int threads = threads_of_pool.load(std::memory_order_relaxed);
  release(fork_of_team);
#pragma omp parallel num_threads(threads)
  {
    const int step = omp_get_num_threads();
    acquire(fork_of_team);
    for (std::int64_t i = omp_get_thread_num(); i < pieces; i += step) piece(context, i);
    release(join_of_team);
  }
  acquire(join_of_team);
}

KernelSession::KernelSession(int threads) : most_threads_(threads) {
  if (threads < 1) {
    throw ConfigError("threads", std::to_string(threads),
                      "a kernel session needs at least one thread");
  }
  expect(!session_was_made.exchange(true), "a second KernelSession in one process");
  omp_set_num_threads(threads);
  threads_of_pool = threads;
  threads_in_use = threads;
}

KernelSession::~KernelSession() {
  threads_in_use = 1;
  threads_of_pool = 1;
  device::end_streams();
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

StreamSession::StreamSession(const Queue& queue) : stream_(queue.native) {
  expect(queue.device == DeviceKind::Cuda,
         "a StreamSession on a queue of " + std::string(to_string(queue.device)));
  expect(session_was_made && threads_of_pool > 0, "a StreamSession without a KernelSession");
  device::begin_stream(stream_);
}

StreamSession::~StreamSession() {
  device::end_stream(stream_);
}

const char* instruction_set() {
  return loops().name;
}

}  // namespace garonne::kernels
