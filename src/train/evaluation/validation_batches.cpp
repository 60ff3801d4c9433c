#include "train/evaluation/validation_batches.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"

namespace garonne::train {

std::int64_t spread_sample(std::int64_t place, std::int64_t wanted, std::int64_t samples) {
  expect(wanted < std::int64_t{1} << 31, "a validation of too many samples");
  // The middle of stretch `place` of `wanted` equal ones: ⌊(2 place + 1) samples / (2 wanted)⌋,
  // without the whole product, which may not fit.
  const std::int64_t odd = 2 * place + 1;
  const std::int64_t halves = odd * (samples / wanted);
  return halves / 2 + (halves % 2 * wanted + odd * (samples % wanted)) / (2 * wanted);
}

ValidationBatches::ValidationBatches(std::vector<ValidationSource> sources, std::int64_t batches,
                                     std::int64_t micro_batch)
    : sources_(std::move(sources)), micro_batch_(micro_batch) {
  const auto most = [&](std::size_t source) {
    return std::max<std::int64_t>(1, sources_[source].samples / micro_batch_);
  };
  std::int64_t all = 0;
  for (std::size_t i = 0; i < sources_.size(); ++i) all += most(i);
  for (std::size_t i = 0; i < sources_.size(); ++i)
    batches_of_.push_back(batches >= all ? most(i) : 1);
  batches_ = batches >= all ? all : static_cast<std::int64_t>(sources_.size());
  // One after the other to the source that has least of its share (Sainte-Laguë's method); of
  // several the first.
  for (; batches_ < std::min(batches, all); ++batches_) {
    std::size_t next = sources_.size();
    double largest = 0;
    for (std::size_t i = 0; i < sources_.size(); ++i) {
      if (batches_of_[i] == most(i)) continue;
      const double lack = sources_[i].weight / (2 * static_cast<double>(batches_of_[i]) + 1);
      if (next < sources_.size() && lack <= largest) continue;
      largest = lack;
      next = i;
    }
    ++batches_of_[next];
  }
}

std::vector<std::int64_t> ValidationBatches::samples_of(std::int64_t place) const {
  std::size_t source = 0;
  while (place >= batches_of_[source]) place -= batches_of_[source++];
  const std::int64_t wanted = batches_of_[source] * micro_batch_;
  std::vector<std::int64_t> samples;
  for (std::int64_t i = place * micro_batch_; i < (place + 1) * micro_batch_; ++i) {
    samples.push_back(sources_[source].first_sample +
                      spread_sample(i, wanted, sources_[source].samples));
  }
  return samples;
}

std::vector<double> ValidationBatches::means(const std::vector<double>& losses) const {
  std::vector<double> means;
  std::size_t next = 0;
  for (const std::int64_t batches : batches_of_) {
    double sum = 0;
    for (std::int64_t i = 0; i < batches; ++i) sum += losses[next++];
    means.push_back(sum / static_cast<double>(batches));
  }
  return means;
}

double ValidationBatches::weighted(const std::vector<double>& means) const {
  double sum = 0;
  for (std::size_t i = 0; i < means.size(); ++i) sum += share(i) * means[i];
  return sum;
}

double ValidationBatches::share(std::size_t source) const {
  double sum = 0;
  for (const ValidationSource& one : sources_) sum += one.weight;
  return sources_[source].weight / sum;
}

}  // namespace garonne::train
