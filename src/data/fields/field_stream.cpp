#include "data/fields/field_stream.hpp"

#include <algorithm>
#include <cmath>
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

class FieldStream::Source {
 public:
  Source(FieldDataset dataset, FieldSlab slab, FieldStatistics statistics)
      : dataset_(std::move(dataset)), slab_(slab), statistics_(std::move(statistics)) {
    check_statistics(statistics_, dataset_.info());
  }

  FieldBatch read(std::vector<std::int64_t> samples) {
    return read_field_batch(dataset_, slab_, statistics_, std::move(samples), dataset_.masks());
  }

  const FieldDatasetInfo& info() const { return dataset_.info(); }
  const FieldStatistics& statistics() const { return statistics_; }

 private:
  FieldDataset dataset_;
  FieldSlab slab_;
  FieldStatistics statistics_;
};

FieldStream::FieldStream(std::shared_ptr<Reader> reader, const std::function<FieldDataset()>& open,
                         FieldSlab slab, FieldStatistics statistics, SamplesOf samples_of,
                         std::int64_t first_ordinal, std::int64_t end_ordinal, int depth)
    : ahead_(std::make_unique<ReadAhead<Source>>(
          std::move(reader),
          [&] { return std::make_unique<Source>(open(), slab, std::move(statistics)); },
          std::move(samples_of), first_ordinal, end_ordinal, depth)) {}

FieldStream::FieldStream(std::shared_ptr<Reader> reader, const FieldDataset& dataset,
                         FieldSlab slab, FieldStatistics statistics, SamplesOf samples_of,
                         std::int64_t first_ordinal, std::int64_t end_ordinal, int depth)
    : FieldStream(
          std::move(reader), [&] { return dataset.again(); }, slab, std::move(statistics),
          std::move(samples_of), first_ordinal, end_ordinal, depth) {}

FieldStream::FieldStream(std::shared_ptr<Reader> reader, const FieldQuery& query, FieldSlab slab,
                         FieldStatistics statistics, SamplesOf samples_of,
                         std::int64_t first_ordinal, std::int64_t end_ordinal, int depth)
    : FieldStream(
          std::move(reader), [&] { return FieldDataset::open(query); }, slab, std::move(statistics),
          std::move(samples_of), first_ordinal, end_ordinal, depth) {}

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
