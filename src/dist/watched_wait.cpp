#include "dist/watched_wait.hpp"

#include "dist/roll_call.hpp"

namespace garonne::dist {

WatchedWait::~WatchedWait() {
  if (!watched_) return;
  session_.roll_call_->over();
  session_.wait_is_watched_ = false;
}

void WatchedWait::lasts(double seconds, bool limited) {
  if (!session_.roll_call_) return;
  if (!watched_) watched_ = !session_.wait_is_watched_.exchange(true);
  if (!watched_) return;
  const double limit = session_.wait_limit_;
  session_.roll_call_->waiting(seconds, limited ? limit : 0, limit > 0);
}

}  // namespace garonne::dist
