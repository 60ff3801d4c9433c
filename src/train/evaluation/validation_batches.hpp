// Which samples a validation evaluates: by the sources and their weights alone, so the same at
// every step and on every grid.
#pragma once

#include <cstdint>
#include <vector>

#include "train/workload/workload.hpp"

namespace garonne::train {

// Sample `place` of `wanted` that are spread evenly over `samples`: each once where these are as
// many. InternalError for 2^31 wanted ones.
std::int64_t spread_sample(std::int64_t place, std::int64_t wanted, std::int64_t samples);

// Micro-batches, each of one source, those of the first source first. A source has one at least;
// further ones go to the sources by their weights, until their samples are all there. Within a
// source samples are spread evenly; one with fewer samples than a micro-batch has some several
// times. A value.
class ValidationBatches {
 public:
  // About `batches` micro-batches of `micro_batch` samples: as many as the sources are where these
  // are more, and no more than they have.
  ValidationBatches(std::vector<ValidationSource> sources, std::int64_t batches,
                    std::int64_t micro_batch);

  const std::vector<ValidationSource>& sources() const { return sources_; }
  std::int64_t batches() const { return batches_; }
  std::int64_t batches_of(std::size_t source) const { return batches_of_[source]; }
  // Numbers of the samples of micro-batch `place`.
  std::vector<std::int64_t> samples_of(std::int64_t place) const;
  // The mean of each source's losses, which are those of all micro-batches, added in their order.
  std::vector<double> means(const std::vector<double>& losses) const;
  // The mean of these by the weights of the sources.
  double weighted(const std::vector<double>& means) const;
  // The weight of a source in it; all together 1.
  double share(std::size_t source) const;

 private:
  std::vector<ValidationSource> sources_;
  std::int64_t micro_batch_;
  std::vector<std::int64_t> batches_of_;  // by source
  std::int64_t batches_ = 0;
};

}  // namespace garonne::train
