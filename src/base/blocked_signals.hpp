// Threads that take no signals: these are for the one that turns them into requests to stop.
#pragma once

#include <pthread.h>
#include <signal.h>

namespace garonne {

// Of the calling thread, for as long as it runs.
inline void block_all_signals() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
}

}  // namespace garonne
