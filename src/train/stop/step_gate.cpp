#include "train/stop/step_gate.hpp"

namespace garonne::train {

void StepGate::pass(std::int64_t step, bool updates) {
  if (!updates && !frozen_.load(std::memory_order_relaxed)) return;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] {
    return !frozen_ && (!updates || step == entered_ || !closed_ || step <= allowed_);
  });
  if (updates) entered_ = step;
}

void StepGate::finish(std::int64_t step) {
  const std::lock_guard lock(mutex_);
  finished_ = step;
  changed_.notify_all();
}

void StepGate::give_up() {
  const std::lock_guard lock(mutex_);
  given_up_ = true;
  changed_.notify_all();
}

std::int64_t StepGate::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  return entered_;
}

void StepGate::allow(std::int64_t step) {
  const std::lock_guard lock(mutex_);
  allowed_ = step;
  changed_.notify_all();
}

bool StepGate::freeze_after(std::int64_t step) {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return finished_ >= step || given_up_; });
    if (finished_ < step) return false;
    frozen_ = true;
  }
  outside_.lock();
  return true;
}

}  // namespace garonne::train
