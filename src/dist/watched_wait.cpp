#include "dist/watched_wait.hpp"

#include "base/error.hpp"
#include "dist/launch_wait.hpp"
#include "dist/roll_call.hpp"

namespace garonne::dist {

WatchedWait::~WatchedWait() {
  if (!watched_) return;
  if (session_.roll_call_) session_.roll_call_->over();
  session_.wait_is_watched_ = false;
}

void WatchedWait::lasts(double seconds, bool limited) {
  if (!session_.launch_wait_) return;
  if (!watched_) watched_ = !session_.wait_is_watched_.exchange(true);
  if (!watched_) return;
  if (session_.roll_call_) {
    const double limit = session_.wait_limit_;
    session_.roll_call_->waiting(seconds, limited ? limit : 0, limit > 0);
    return;
  }
  const std::string in = "an agreement of all ranks";
  const std::string why = session_.launch_wait_->ended_by(seconds, in, 0);
  if (!why.empty()) throw CommunicationError(in, why);
}

}  // namespace garonne::dist
