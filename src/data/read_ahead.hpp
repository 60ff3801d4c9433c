// Micro-batches read ahead of their use: the queue between a Reader's thread and the thread that
// trains.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "data/reader.hpp"

namespace garonne::data {

// Sample numbers of the micro-batch with this ordinal. Called on the reader's thread, in ascending
// order, ahead of use: it must not touch what other threads change.
using SamplesOf = std::function<std::vector<std::int64_t>(std::int64_t ordinal)>;

// Micro-batches first_ordinal, first_ordinal + 1, … up to `depth` of them (at least one) read
// ahead. `Source::read(samples)` makes one, which has room for its `ordinal`; sources live and die
// on the reader's thread. For one consuming thread. The destructor waits for at most the
// micro-batch being read.
template <typename Source>
class ReadAhead {
 public:
  using Batch = decltype(std::declval<Source&>().read(std::vector<std::int64_t>()));

  // `open` makes the source on the reader's thread; what it throws is thrown here. `end_ordinal`:
  // the first ordinal not wanted; -1 = endless.
  ReadAhead(std::shared_ptr<Reader> reader, const std::function<std::unique_ptr<Source>()>& open,
            SamplesOf samples_of, std::int64_t first_ordinal, std::int64_t end_ordinal, int depth)
      : reader_(std::move(reader)),
        task_(std::make_shared<Task>(std::move(samples_of), first_ordinal, end_ordinal, depth)) {
    reader_->call([&] { task_->source = open(); });
    reader_->add(task_);
  }
  ~ReadAhead() {
    reader_->remove(task_);
    reader_->call([&] { task_->source.reset(); });
  }
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  // The next micro-batch; waits for it. What `read` or `samples_of` threw is thrown here when its
  // turn comes, and again by every later call. InternalError past end_ordinal.
  Batch next() {
    Batch batch = task_->take();
    reader_->wake();
    return batch;
  }

  // For what never changes.
  const Source& source() const { return *task_->source; }

 private:
  // The reader's side fills the queue, the consumer's side empties it.
  class Task final : public ReaderTask {
   public:
    Task(SamplesOf samples_of, std::int64_t first_ordinal, std::int64_t end_ordinal, int depth)
        : samples_of_(std::move(samples_of)),
          ordinal_(first_ordinal),
          end_(end_ordinal),
          depth_(static_cast<std::size_t>(depth < 1 ? 1 : depth)) {}

    bool ready() override {
      const std::lock_guard lock(mutex_);
      return !error_ && queue_.size() < depth_ && !finished();
    }

    void work() override {
      std::optional<Batch> batch;
      std::exception_ptr error;
      try {
        batch = source->read(samples_of_(ordinal_));
        batch->ordinal = ordinal_;
      } catch (...) {
        error = std::current_exception();
      }
      {
        const std::lock_guard lock(mutex_);
        ++ordinal_;
        error_ = error;
        if (batch) queue_.push_back(std::move(*batch));
      }
      filled_.notify_all();
    }

    Batch take() {
      std::unique_lock lock(mutex_);
      filled_.wait(lock, [this] { return !queue_.empty() || error_ || finished(); });
      if (queue_.empty()) {
        if (error_) std::rethrow_exception(error_);
        throw InternalError("a stream of micro-batches was read beyond its end");
      }
      Batch batch = std::move(queue_.front());
      queue_.pop_front();
      return batch;
    }

    std::unique_ptr<Source> source;

   private:
    bool finished() const { return end_ >= 0 && ordinal_ >= end_; }

    SamplesOf samples_of_;
    std::mutex mutex_;
    std::condition_variable filled_;
    std::deque<Batch> queue_;
    std::exception_ptr error_;
    std::int64_t ordinal_;  // of the next to be read
    std::int64_t end_;
    std::size_t depth_;
  };

  std::shared_ptr<Reader> reader_;
  std::shared_ptr<Task> task_;
};

}  // namespace garonne::data
