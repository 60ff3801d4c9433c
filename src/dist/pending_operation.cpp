#include "dist/pending_operation.hpp"

#include <algorithm>
#include <thread>

#include "base/awake_time.hpp"

namespace garonne::dist {

std::chrono::microseconds Backoff::next(bool& yield) {
  using std::chrono::microseconds;
  const int immediate = urgent_ ? 50 : 5;
  const int yielding = urgent_ ? 1000 : 10;
  const microseconds shortest(urgent_ ? 20 : 50);
  const microseconds longest(urgent_ ? 100 : 200);
  ++polls_;
  yield = polls_ > immediate;
  if (polls_ <= immediate + yielding) return microseconds(0);
  const int sleeps = polls_ - immediate - yielding;
  // Some tens of milliseconds without news: somebody computes or solves, and wants the processor.
  if (sleeps > 500) return microseconds(1000);
  return std::min(longest, shortest * (1 + sleeps / 16));
}

void complete(PendingOperation& operation, const std::function<void(double)>& waiting) {
  Backoff backoff(true);
  AwakeTime waited;
  auto told = AwakeTime::Clock::now();
  operation.start();
  for (;;) {
    const Advance progress = operation.advance();
    if (progress == Advance::Done) return;
    if (progress == Advance::Some) backoff.reset();
    bool yield = false;
    const auto pause = backoff.next(yield);
    if (pause.count() > 0) {
      const auto now = AwakeTime::Clock::now();
      if (waiting && now - told >= wait_watched_every) {
        told = now;
        waiting(waited.seconds());
      }
      std::this_thread::sleep_for(pause);
    } else if (yield) {
      std::this_thread::yield();
    }
  }
}

}  // namespace garonne::dist
