#include "data/fields/field_stream.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.hpp"

namespace garonne::data {
namespace {

// 0 where there is no value.
void fill_missing(std::vector<float>& values) {
  for (float& value : values) {
    if (std::isnan(value)) value = 0;
  }
}

// 1 where there is a value, else 0.
void add_presence(const std::vector<float>& values, std::vector<float>& mask) {
  for (const float value : values) mask.push_back(std::isnan(value) ? 0.0F : 1.0F);
}

// [frames, batch, …] from samples, each of which is [frames, …] with `values` in all.
class StepsFirst {
 public:
  StepsFirst(std::int64_t frames, std::int64_t values, std::int64_t batch)
      : frames_(frames), batch_(batch), frame_values_(frames > 0 ? values / frames : 0) {
    if (!in_place()) sample_.resize(static_cast<std::size_t>(frames_ * frame_values_));
    all_.resize(static_cast<std::size_t>(batch_ * frames_ * frame_values_));
  }

  // Where the sample with this place in the batch goes to; null where no frame is wanted.
  float* of_sample(std::int64_t place) {
    if (frames_ == 0) return nullptr;
    return in_place() ? all_.data() + place * frames_ * frame_values_ : sample_.data();
  }
  void take(std::int64_t place) {
    if (in_place()) return;
    for (std::int64_t frame = 0; frame < frames_; ++frame) {
      std::copy_n(sample_.data() + frame * frame_values_, frame_values_,
                  all_.data() + (frame * batch_ + place) * frame_values_);
    }
  }
  std::vector<float> all() { return std::move(all_); }

 private:
  // Where the two orders are one: a sample may be hundreds of megabytes.
  bool in_place() const { return frames_ <= 1 || batch_ == 1; }

  std::int64_t frames_;
  std::int64_t batch_;
  std::int64_t frame_values_;
  std::vector<float> sample_;
  std::vector<float> all_;
};

void check_statistics(const FieldStatistics& statistics, const FieldDatasetInfo& info) {
  if (statistics.mode == "none") return;
  expect(statistics.inputs.channels == info.input_channels &&
             statistics.targets.channels == info.target_channels,
         "statistics of other channels than the dataset's");
}

}  // namespace

FieldBatch read_field_batch(FieldDataset& dataset, FieldSlab slab,
                            const FieldStatistics& statistics, std::vector<std::int64_t> samples,
                            FieldParts parts) {
  const FieldDatasetInfo& info = dataset.info();
  const std::int64_t rows = slab.rows < 0 ? info.points[0] - slab.first_row : slab.rows;
  const std::int64_t plane = info.plane(rows);
  const std::int64_t input_values = info.input_values(rows);
  const auto count = static_cast<std::int64_t>(samples.size());
  const bool masks = dataset.masks();
  const bool masked = masks && parts.mask;
  FieldBatch batch;
  if (parts.input) batch.input.resize(static_cast<std::size_t>(count * input_values));
  // A mask tells of the frames between too; without one they are of no use.
  StepsFirst between(masked ? info.between_frames : 0, info.between_values(rows), count);
  StepsFirst target(parts.target || masked ? info.target_frames : 0, info.target_values(rows),
                    count);
  for (std::int64_t index = 0; index < count; ++index) {
    dataset.read(samples[static_cast<std::size_t>(index)], slab,
                 parts.input ? batch.input.data() + index * input_values : nullptr,
                 target.of_sample(index), between.of_sample(index));
    between.take(index);
    target.take(index);
  }
  batch.target = target.all();
  statistics.inputs.normalise(slab.first_row, plane, batch.input);
  statistics.targets.normalise(slab.first_row, plane, batch.target);
  if (masked) {
    std::vector<float> earlier = between.all();
    statistics.targets.normalise(slab.first_row, plane, earlier);
    add_presence(earlier, batch.mask);
    add_presence(batch.target, batch.mask);
  }
  if (!parts.target) batch.target.clear();
  if (masks) {
    fill_missing(batch.input);
    fill_missing(batch.target);
  }
  batch.samples = std::move(samples);
  return batch;
}

class FieldStream::Source {
 public:
  Source(FieldDataset dataset, FieldSlab slab, FieldStatistics statistics, FieldParts parts)
      : dataset_(std::move(dataset)),
        slab_(slab),
        statistics_(std::move(statistics)),
        parts_(parts) {
    check_statistics(statistics_, dataset_.info());
  }

  FieldBatch read(std::vector<std::int64_t> samples) {
    return read_field_batch(dataset_, slab_, statistics_, std::move(samples), parts_);
  }

  const FieldDatasetInfo& info() const { return dataset_.info(); }
  const FieldStatistics& statistics() const { return statistics_; }

 private:
  FieldDataset dataset_;
  FieldSlab slab_;
  FieldStatistics statistics_;
  FieldParts parts_;
};

FieldStream::FieldStream(std::shared_ptr<Reader> reader, const std::function<FieldDataset()>& open,
                         FieldSlab slab, FieldStatistics statistics, SamplesOf samples_of,
                         std::int64_t first_ordinal, std::int64_t end_ordinal, FieldParts parts,
                         int depth)
    : ahead_(std::make_unique<ReadAhead<Source>>(
          std::move(reader),
          [&] { return std::make_unique<Source>(open(), slab, std::move(statistics), parts); },
          std::move(samples_of), first_ordinal, end_ordinal, depth)) {}

FieldStream::FieldStream(std::shared_ptr<Reader> reader, const FieldDataset& dataset,
                         FieldSlab slab, FieldStatistics statistics, SamplesOf samples_of,
                         std::int64_t first_ordinal, std::int64_t end_ordinal, FieldParts parts,
                         int depth)
    : FieldStream(
          std::move(reader), [&] { return dataset.again(); }, slab, std::move(statistics),
          std::move(samples_of), first_ordinal, end_ordinal, parts, depth) {}

FieldStream::FieldStream(std::shared_ptr<Reader> reader, const FieldQuery& query, FieldSlab slab,
                         FieldStatistics statistics, SamplesOf samples_of,
                         std::int64_t first_ordinal, std::int64_t end_ordinal, FieldParts parts,
                         int depth)
    : FieldStream(
          std::move(reader), [&] { return FieldDataset::open(query); }, slab, std::move(statistics),
          std::move(samples_of), first_ordinal, end_ordinal, parts, depth) {}

FieldStream::~FieldStream() = default;
FieldStream::FieldStream(FieldStream&&) noexcept = default;
FieldStream& FieldStream::operator=(FieldStream&& other) noexcept = default;

FieldBatch FieldStream::next() {
  return ahead_->next();
}

const FieldDatasetInfo& FieldStream::info() const {
  return ahead_->source().info();
}
const FieldStatistics& FieldStream::statistics() const {
  return ahead_->source().statistics();
}

}  // namespace garonne::data
