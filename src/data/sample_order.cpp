#include "data/sample_order.hpp"

#include <algorithm>
#include <string>

#include "base/error.hpp"
#include "base/philox.hpp"

namespace garonne::data {
namespace {

// Domains of `permute`: one for the blocks, then one for each run of blocks.
constexpr std::uint64_t blocks_domain = 0;
constexpr std::uint64_t first_run_domain = 1;

// Four rounds are enough for a strong network (Luby and Rackoff); halves here are a few bits wide,
// where more mixing costs little.
constexpr int rounds = 6;

// One half under one key: the finaliser of MurmurHash3 (32 bits), every bit of which depends on
// all.
constexpr std::uint32_t mix(std::uint32_t value, std::uint32_t key) {
  value ^= key;
  value = (value ^ (value >> 16)) * 0x85EBCA6BU;
  value = (value ^ (value >> 13)) * 0xC2B2AE35U;
  return value ^ (value >> 16);
}

}  // namespace

std::int64_t permute(std::int64_t index, std::int64_t size, std::uint64_t seed, std::uint64_t epoch,
                     std::uint64_t domain) {
  expect(index >= 0 && index < size, "permute: index outside its domain");
  if (size == 1) return 0;
  int half_bits = 1;
  while (half_bits < 31 && std::int64_t{1} << (2 * half_bits) < size) ++half_bits;
  const std::uint32_t mask = (std::uint32_t{1} << half_bits) - 1;
  // The keys of the rounds are Philox's; within a round a cheaper mixing is enough.
  const PhiloxKey key = philox_key(seed, "sample order", epoch);
  std::uint32_t keys[8];
  for (std::uint32_t half = 0; half < 2; ++half) {
    const PhiloxBlock words = philox(
        {{half, 0, static_cast<std::uint32_t>(domain), static_cast<std::uint32_t>(domain >> 32)}},
        key);
    for (int word = 0; word < 4; ++word)
      keys[half * 4 + static_cast<std::uint32_t>(word)] = words.word[word];
  }
  auto value = static_cast<std::uint64_t>(index);
  do {
    auto left = static_cast<std::uint32_t>(value >> half_bits);
    auto right = static_cast<std::uint32_t>(value) & mask;
    for (int round = 0; round < rounds; ++round) {
      const std::uint32_t next = left ^ (mix(right, keys[round]) & mask);
      left = right;
      right = next;
    }
    value = static_cast<std::uint64_t>(left) << half_bits | right;
    // Outside: walk on along the cycle, which must come back inside, since it began there.
  } while (value >= static_cast<std::uint64_t>(size));
  return static_cast<std::int64_t>(value);
}

SampleOrder::SampleOrder(std::int64_t samples, std::uint64_t seed, std::int64_t block,
                         std::int64_t together)
    : samples_(samples), seed_(seed), block_(block), together_(together) {
  if (samples < 1) throw ConfigError("the data has no sample: fewer tokens than one sequence");
  if (block < 1 || together < 1) throw ConfigError("a shuffle block holds at least one sample");
  if (samples > std::int64_t{1} << 48) throw ConfigError("more than 2^48 samples");
  block_ = std::min(block_, samples_);
  const std::int64_t blocks = (samples_ + block_ - 1) / block_;
  // As many runs as are needed, of about equal length, so that little rounding up is left.
  const std::int64_t runs = (blocks + together_ - 1) / together_;
  together_ = (blocks + runs - 1) / runs;
  blocks_ = runs * together_;
}

std::int64_t SampleOrder::sample(std::int64_t global_index) const {
  expect(global_index >= 0, "SampleOrder: negative index");
  const auto epoch = static_cast<std::uint64_t>(global_index / samples_);
  std::int64_t value = global_index % samples_;
  const std::int64_t run_samples = together_ * block_;
  // The domain is rounded up to whole runs of whole blocks; a value beyond the last sample walks
  // on, as in `permute`. Only these few, less than a run in an epoch, are read out of their block's
  // turn.
  do {
    const std::int64_t run = value / run_samples;
    const std::int64_t place = permute(value % run_samples, run_samples, seed_, epoch,
                                       first_run_domain + static_cast<std::uint64_t>(run));
    const std::int64_t block =
        permute(run * together_ + place / block_, blocks_, seed_, epoch, blocks_domain);
    value = block * block_ + place % block_;
  } while (value >= samples_);
  return value;
}

std::vector<std::int64_t> SampleOrder::step_samples(std::int64_t step,
                                                    std::int64_t global_batch) const {
  expect(step >= 1 && global_batch >= 1, "SampleOrder: steps count from 1");
  std::vector<std::int64_t> samples(static_cast<std::size_t>(global_batch));
  std::int64_t index = (step - 1) * global_batch;
  for (std::int64_t& sample : samples) sample = this->sample(index++);
  return samples;
}

}  // namespace garonne::data
