#include "data/reader.hpp"

#include <algorithm>
#include <exception>
#include <utility>

namespace garonne::data {

Reader::Reader() : thread_([this] { run(); }) {}

Reader::~Reader() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Reader::call(const std::function<void()>& work) {
  std::exception_ptr error;
  bool done = false;
  std::unique_lock lock(mutex_);
  calls_.push_back([&] {
    try {
      work();
    } catch (...) {
      error = std::current_exception();
    }
    const std::lock_guard inner(mutex_);
    done = true;
  });
  changed_.notify_all();
  changed_.wait(lock, [&] { return done; });
  if (error) std::rethrow_exception(error);
}

void Reader::add(std::shared_ptr<ReaderTask> task) {
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  changed_.notify_all();
}

void Reader::remove(const std::shared_ptr<ReaderTask>& task) {
  // A call runs between two pieces of work, so none is in progress and none will follow.
  call([&] {
    const std::lock_guard lock(mutex_);
    tasks_.erase(std::remove(tasks_.begin(), tasks_.end(), task), tasks_.end());
  });
}

void Reader::wake() {
  // The lock orders this after a look at ready() that found nothing: no wake-up is lost.
  { const std::lock_guard lock(mutex_); }
  changed_.notify_all();
}

void Reader::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    if (!calls_.empty()) {
      const std::function<void()> work = std::move(calls_.front());
      calls_.erase(calls_.begin());
      lock.unlock();
      work();
      changed_.notify_all();
      lock.lock();
      continue;
    }
    if (stopping_) return;
    std::shared_ptr<ReaderTask> chosen;
    for (std::size_t offset = 0; offset < tasks_.size() && !chosen; ++offset) {
      const std::size_t index = (turn_ + offset) % tasks_.size();
      if (tasks_[index]->ready()) {
        chosen = tasks_[index];
        turn_ = index + 1;
      }
    }
    if (chosen) {
      lock.unlock();
      chosen->work();
      chosen.reset();
      lock.lock();
    } else {
      changed_.wait(lock);
    }
  }
}

}  // namespace garonne::data
