// Life of the thread pool that the kernels run on.
#pragma once

#include "base/device.hpp"

namespace garonne::kernels {

// The pool is one per process: a second session, even after the first is gone, is refused with
// InternalError. Kernels called while no session lives run on the calling thread.
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

// What kernels need on a stream of CUDA, made once: making it in a kernel's call would wait for the
// device. Kernels can be put into the queue while this lives; it goes before the stream does, and
// after all that was put there is done.
class StreamSession {
 public:
  // On the device that is current, with a KernelSession. InternalError for a queue of another kind,
  // the default stream, a stream that has a session, or a process whose kernels are on another
  // device; NotBuiltError in builds without CUDA, or without code for this GPU.
  explicit StreamSession(const Queue& queue);
  ~StreamSession();
  StreamSession(const StreamSession&) = delete;
  StreamSession& operator=(const StreamSession&) = delete;

 private:
  void* stream_;
};

// The threads that kernels on `queue` use: those that it allows of the session's, 1 without a
// session.
int threads_of(const Queue& queue);

// "avx512", "avx2" or "baseline": the instructions that the inner loops use, the best that the
// processor has unless the environment variable GARONNE_INSTRUCTIONS names one of them (ConfigError
// when the processor lacks it).
const char* instruction_set();

}  // namespace garonne::kernels
