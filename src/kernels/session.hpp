// Life of the thread pool that the kernels run on.
#pragma once

#include "base/device.hpp"

namespace garonne::kernels {

// Starts Kokkos, and stops it when destroyed. Kokkos can be started once in a process, so a second
// session, even after the first is gone, is refused with InternalError. Kernels called while no
// session lives run on the calling thread.
class KernelSession {
 public:
  // `threads` at least 1 (ConfigError otherwise); the same OpenMP runtime as the rest of the
  // process.
  explicit KernelSession(int threads);
  ~KernelSession();
  KernelSession(const KernelSession&) = delete;
  KernelSession& operator=(const KernelSession&) = delete;

  // The threads that kernels may use now.
  int threads() const;
  // From now on kernels use `threads` of those the session was made with (ConfigError when more or
  // < 1).
  void use_threads(int threads);

 private:
  int most_threads_;
};

// The threads that kernels on `queue` use: those that it allows of the session's, 1 without a
// session.
int threads_of(const Queue& queue);

// "avx512", "avx2" or "baseline": the instructions that the inner loops use, the best that the
// processor has unless the environment variable GARONNE_INSTRUCTIONS names one of them (ConfigError
// when the processor lacks it).
const char* instruction_set();

}  // namespace garonne::kernels
