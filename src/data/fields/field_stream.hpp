// Micro-batches of field samples, read and normalised ahead of their use.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "data/fields/field_dataset.hpp"
#include "data/read_ahead.hpp"
#include "data/statistics/field_statistics.hpp"

namespace garonne::data {

// What of the samples is wanted: the rest is not read, and empty in the batches.
struct FieldParts {
  bool input = true;
  bool target = true;
  bool mask = true;  // where there is one
};

// Normalised values of a slab. Under missing = "mask" values that were not there are 0, the mean.
struct FieldBatch {
  std::int64_t ordinal = 0;  // of a stream
  std::vector<std::int64_t> samples;
  std::vector<float> input;   // [batch, input frames · input channels, rows, columns]
  std::vector<float> target;  // [rollout, batch, target channels, rows, columns]
  // Under missing = "mask" [push_forward + rollout, batch, target channels, rows, columns]: 1 where
  // there was a value, else 0; of the steps without a target first. Else empty.
  std::vector<float> mask;
};

// Micro-batches first_ordinal, first_ordinal + 1, … of one dataset, up to `depth` of them read
// ahead. For one consuming thread. The destructor waits for at most the micro-batch being read.
class FieldStream {
 public:
  // Reads `dataset` again, with files of its own. `statistics` are of its channels (InternalError
  // else). `end_ordinal`: the first ordinal not wanted; -1 = endless.
  FieldStream(std::shared_ptr<Reader> reader, const FieldDataset& dataset, FieldSlab slab,
              FieldStatistics statistics, SamplesOf samples_of, std::int64_t first_ordinal,
              std::int64_t end_ordinal = -1, FieldParts parts = {}, int depth = 2);
  // Opens the dataset on the reader's thread. Errors as FieldDataset::open.
  FieldStream(std::shared_ptr<Reader> reader, const FieldQuery& query, FieldSlab slab,
              FieldStatistics statistics, SamplesOf samples_of, std::int64_t first_ordinal,
              std::int64_t end_ordinal = -1, FieldParts parts = {}, int depth = 2);
  ~FieldStream();
  FieldStream(FieldStream&&) noexcept;
  FieldStream& operator=(FieldStream&&) noexcept;

  // The next micro-batch; waits for it. What went wrong on the reader's thread is thrown here when
  // its turn comes, and again by every later call: IoError as FieldDataset::read. InternalError
  // past end_ordinal or for a sample out of range.
  FieldBatch next();

  const FieldDatasetInfo& info() const;
  const FieldStatistics& statistics() const;

 private:
  class Source;
  FieldStream(std::shared_ptr<Reader> reader, const std::function<FieldDataset()>& open,
              FieldSlab slab, FieldStatistics statistics, SamplesOf samples_of,
              std::int64_t first_ordinal, std::int64_t end_ordinal, FieldParts parts, int depth);

  std::unique_ptr<ReadAhead<Source>> ahead_;
};

// One micro-batch, read on the calling thread; for commands and checks.
FieldBatch read_field_batch(FieldDataset& dataset, FieldSlab slab,
                            const FieldStatistics& statistics, std::vector<std::int64_t> samples,
                            FieldParts parts = {});

}  // namespace garonne::data
