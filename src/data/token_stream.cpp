#include "data/token_stream.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "data/hdf5.hpp"
#include "data/sample_order.hpp"
#include "data/token_pages.hpp"

namespace garonne::data {
namespace {

// A run of shuffled blocks (sample_order.hpp) of 32-bit tokens is 32 MiB; twice that also holds
// what lies across the ends of blocks and the beginning of the next run.
constexpr std::int64_t kept_bytes = 64 << 20;

void require_window(const TokenFileInfo& info, const std::string& dataset, std::int64_t sequence) {
  if (sequence < 1)
    throw ConfigError("sequence", fmt::format("{}", sequence), "must be at least 1");
  const std::int64_t tokens = info.tokens_of(dataset);
  if (windows(tokens, sequence) > 0) return;
  throw IoError(info.path, fmt::format("dataset \"{}\" has {} tokens; one sample of sequence {} "
                                       "takes {}",
                                       dataset, tokens, sequence, sequence + 1));
}

MicroBatch cut(TokenPages& pages, std::int64_t sequence, std::vector<std::int64_t> samples) {
  MicroBatch batch;
  const std::int64_t available = windows(pages.tokens(), sequence);
  const auto length = static_cast<std::size_t>(sequence);
  batch.tokens.resize(samples.size() * length);
  batch.targets.resize(samples.size() * length);
  std::int64_t* inputs = batch.tokens.data();
  std::int64_t* targets = batch.targets.data();
  for (const std::int64_t sample : samples) {
    if (sample < 0 || sample >= available) {
      throw InternalError(fmt::format("sample {} asked for, but there are {}", sample, available));
    }
    pages.copy(sample * sequence, std::span(inputs, length));
    std::copy_n(inputs + 1, length - 1, targets);
    pages.copy((sample + 1) * sequence, std::span(targets + length - 1, 1));
    inputs += length;
    targets += length;
  }
  batch.samples = std::move(samples);
  return batch;
}

}  // namespace

// The reader's side fills the queue, the consumer's side empties it.
class TokenStream::Task final : public ReaderTask {
 public:
  Task(const std::string& path, const std::string& dataset, std::int64_t sequence,
       SamplesOf samples_of, std::int64_t first_ordinal, std::int64_t end_ordinal, int depth)
      : file_(Hdf5File::open(path)),
        info_(inspect_open_file(file_)),
        sequence_(sequence),
        samples_of_(std::move(samples_of)),
        ordinal_(first_ordinal),
        end_(end_ordinal),
        depth_(static_cast<std::size_t>(depth < 1 ? 1 : depth)) {
    require_window(info_, dataset, sequence);
    pages_.emplace(file_, dataset, info_.vocabulary, kept_bytes);
  }

  bool ready() override {
    const std::lock_guard lock(mutex_);
    return !error_ && queue_.size() < depth_ && !finished();
  }

  void work() override {
    std::optional<MicroBatch> batch;
    std::exception_ptr error;
    try {
      batch = cut(*pages_, sequence_, samples_of_(ordinal_));
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

  MicroBatch take() {
    std::unique_lock lock(mutex_);
    filled_.wait(lock, [this] { return !queue_.empty() || error_ || finished(); });
    if (queue_.empty()) {
      if (error_) std::rethrow_exception(error_);
      throw InternalError("a token stream was read beyond its end");
    }
    MicroBatch batch = std::move(queue_.front());
    queue_.pop_front();
    return batch;
  }

  const TokenFileInfo& info() const { return info_; }
  std::int64_t samples() const { return windows(pages_->tokens(), sequence_); }

  // Lets go of the file; on the reader's thread.
  void close() {
    pages_.reset();
    file_.close();
  }

 private:
  bool finished() const { return end_ >= 0 && ordinal_ >= end_; }

  Hdf5File file_;
  TokenFileInfo info_;
  std::optional<TokenPages> pages_;
  std::int64_t sequence_;
  SamplesOf samples_of_;

  std::mutex mutex_;
  std::condition_variable filled_;
  std::deque<MicroBatch> queue_;
  std::exception_ptr error_;
  std::int64_t ordinal_;  // of the next to be read
  std::int64_t end_;
  std::size_t depth_;
};

TokenStream::TokenStream(std::shared_ptr<Reader> reader, const std::string& path,
                         const std::string& dataset, std::int64_t sequence, SamplesOf samples_of,
                         std::int64_t first_ordinal, std::int64_t end_ordinal, int depth)
    : reader_(std::move(reader)) {
  reader_->call([&] {
    task_ = std::make_shared<Task>(path, dataset, sequence, std::move(samples_of), first_ordinal,
                                   end_ordinal, depth);
  });
  reader_->add(task_);
}

TokenStream::TokenStream(const std::string& path, const std::string& dataset, std::int64_t sequence,
                         SamplesOf samples_of, std::int64_t first_ordinal, std::int64_t end_ordinal,
                         int depth)
    : TokenStream(std::make_shared<Reader>(), path, dataset, sequence, std::move(samples_of),
                  first_ordinal, end_ordinal, depth) {}

void TokenStream::leave() {
  if (!task_) return;
  reader_->remove(task_);
  const std::shared_ptr<Task> task = std::move(task_);
  try {
    reader_->call([&] { task->close(); });
  } catch (const Error&) {
    // Nothing was written: a file that does not close loses nothing.
  }
}

TokenStream::~TokenStream() {
  leave();
}
TokenStream::TokenStream(TokenStream&&) noexcept = default;
TokenStream& TokenStream::operator=(TokenStream&& other) noexcept {
  if (this != &other) {
    leave();
    reader_ = std::move(other.reader_);
    task_ = std::move(other.task_);
  }
  return *this;
}

MicroBatch TokenStream::next() {
  MicroBatch batch = task_->take();
  reader_->wake();
  return batch;
}

const TokenFileInfo& TokenStream::info() const {
  return task_->info();
}
std::int64_t TokenStream::samples() const {
  return task_->samples();
}

MicroBatch read_micro_batch(const std::string& path, const std::string& dataset,
                            std::int64_t sequence, std::span<const std::int64_t> samples) {
  const Hdf5File file = Hdf5File::open(path);
  const TokenFileInfo info = inspect_open_file(file);
  require_window(info, dataset, sequence);
  TokenPages pages(file, dataset, info.vocabulary, kept_bytes);
  return cut(pages, sequence, {samples.begin(), samples.end()});
}

}  // namespace garonne::data
