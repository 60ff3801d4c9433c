#include "data/field_stream.hpp"

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <utility>

#include "base/error.hpp"

namespace garonne::data {
namespace {

// 0 where there is no value; the mask, where it is wanted, tells which those were.
void fill_missing(std::vector<float>& values, std::vector<float>* mask) {
  if (mask != nullptr) mask->assign(values.size(), 1);
  for (std::size_t index = 0; index < values.size(); ++index) {
    if (!std::isnan(values[index])) continue;
    values[index] = 0;
    if (mask != nullptr) (*mask)[index] = 0;
  }
}

void check_statistics(const FieldStatistics& statistics, const FieldDatasetInfo& info) {
  if (statistics.mode == "none") return;
  expect(statistics.inputs.channels == info.input_channels &&
             statistics.targets.channels == info.target_channels,
         "statistics of other channels than the dataset's");
}

}  // namespace

FieldBatch read_field_batch(FieldDataset& dataset, FieldSlab slab,
                            const FieldStatistics& statistics, std::vector<std::int64_t> samples,
                            bool masked) {
  const FieldDatasetInfo& info = dataset.info();
  const std::int64_t rows = slab.rows < 0 ? info.points[0] - slab.first_row : slab.rows;
  const std::int64_t plane = info.plane(rows);
  const std::int64_t input_values = info.input_values(rows);
  const std::int64_t target_values = info.target_values(rows);
  const std::int64_t frame_values = target_values / info.target_frames;
  const auto count = static_cast<std::int64_t>(samples.size());
  FieldBatch batch;
  batch.input.resize(static_cast<std::size_t>(count * input_values));
  batch.target.resize(static_cast<std::size_t>(count * target_values));
  std::vector<float> target(static_cast<std::size_t>(target_values));
  for (std::int64_t index = 0; index < count; ++index) {
    dataset.read(samples[static_cast<std::size_t>(index)], slab,
                 batch.input.data() + index * input_values, target.data());
    for (std::int64_t frame = 0; frame < info.target_frames; ++frame) {
      std::copy_n(target.data() + frame * frame_values, frame_values,
                  batch.target.data() + (frame * count + index) * frame_values);
    }
  }
  statistics.inputs.normalise(slab.first_row, plane, batch.input);
  statistics.targets.normalise(slab.first_row, plane, batch.target);
  if (masked) {
    fill_missing(batch.input, nullptr);
    fill_missing(batch.target, &batch.mask);
  }
  batch.samples = std::move(samples);
  return batch;
}

// The reader's side fills the queue, the consumer's side empties it.
class FieldStream::Task final : public ReaderTask {
 public:
  Task(const FieldQuery& query, FieldSlab slab, FieldStatistics statistics, SamplesOf samples_of,
       std::int64_t first_ordinal, std::int64_t end_ordinal, int depth)
      : dataset_(FieldDataset::open(query)),
        info_(dataset_->info()),
        slab_(slab),
        statistics_(std::move(statistics)),
        masked_(query.missing == "mask"),
        samples_of_(std::move(samples_of)),
        ordinal_(first_ordinal),
        end_(end_ordinal),
        depth_(static_cast<std::size_t>(depth < 1 ? 1 : depth)) {
    check_statistics(statistics_, info_);
  }

  bool ready() override {
    const std::lock_guard lock(mutex_);
    return !error_ && queue_.size() < depth_ && !finished();
  }

  void work() override {
    std::optional<FieldBatch> batch;
    std::exception_ptr error;
    try {
      batch = read_field_batch(*dataset_, slab_, statistics_, samples_of_(ordinal_), masked_);
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

  FieldBatch take() {
    std::unique_lock lock(mutex_);
    filled_.wait(lock, [this] { return !queue_.empty() || error_ || finished(); });
    if (queue_.empty()) {
      if (error_) std::rethrow_exception(error_);
      throw InternalError("a field stream was read beyond its end");
    }
    FieldBatch batch = std::move(queue_.front());
    queue_.pop_front();
    return batch;
  }

  const FieldDatasetInfo& info() const { return info_; }
  const FieldStatistics& statistics() const { return statistics_; }

  // Lets go of the files; on the reader's thread.
  void close() { dataset_.reset(); }

 private:
  bool finished() const { return end_ >= 0 && ordinal_ >= end_; }

  std::optional<FieldDataset> dataset_;
  FieldDatasetInfo info_;
  FieldSlab slab_;
  FieldStatistics statistics_;
  bool masked_;
  SamplesOf samples_of_;

  std::mutex mutex_;
  std::condition_variable filled_;
  std::deque<FieldBatch> queue_;
  std::exception_ptr error_;
  std::int64_t ordinal_;  // of the next to be read
  std::int64_t end_;
  std::size_t depth_;
};

FieldStream::FieldStream(std::shared_ptr<Reader> reader, const FieldQuery& query, FieldSlab slab,
                         FieldStatistics statistics, SamplesOf samples_of,
                         std::int64_t first_ordinal, std::int64_t end_ordinal, int depth)
    : reader_(std::move(reader)) {
  reader_->call([&] {
    task_ = std::make_shared<Task>(query, slab, std::move(statistics), std::move(samples_of),
                                   first_ordinal, end_ordinal, depth);
  });
  reader_->add(task_);
}

void FieldStream::leave() {
  if (!task_) return;
  reader_->remove(task_);
  const std::shared_ptr<Task> task = std::move(task_);
  reader_->call([&] { task->close(); });
}

FieldStream::~FieldStream() {
  leave();
}
FieldStream::FieldStream(FieldStream&&) noexcept = default;
FieldStream& FieldStream::operator=(FieldStream&& other) noexcept {
  if (this != &other) {
    leave();
    reader_ = std::move(other.reader_);
    task_ = std::move(other.task_);
  }
  return *this;
}

FieldBatch FieldStream::next() {
  FieldBatch batch = task_->take();
  reader_->wake();
  return batch;
}

const FieldDatasetInfo& FieldStream::info() const {
  return task_->info();
}
const FieldStatistics& FieldStream::statistics() const {
  return task_->statistics();
}

}  // namespace garonne::data
