// Which sample comes when: a seeded shuffle that is a function, not a table, so that any rank can
// ask for any step of any epoch at once and a restart needs no state.
#pragma once

#include <cstdint>
#include <vector>

namespace garonne::data {

// Windows per shuffle block for windows of `sequence` tokens: about 128 Ki tokens. A function of
// the sequence alone, so that the order does not depend on how a file is chunked.
constexpr std::int64_t shuffle_block(std::int64_t sequence) {
  const std::int64_t block = sequence > 0 ? 131072 / sequence : 1;
  return block > 1 ? block : 1;
}

// Blocks whose windows are mixed with each other: 64 blocks of 128 Ki tokens are 8 Mi tokens, which
// a stream keeps in memory (16 MiB of 16-bit tokens), so that each is read once an epoch.
inline constexpr std::int64_t shuffle_blocks_together = 64;

// Every sample exactly once an epoch. Blocks of consecutive samples are permuted, then the samples
// within each run of `together` permuted blocks. A value: cheap to copy, safe on every thread.
class SampleOrder {
 public:
  // `samples` in the dataset, `block` samples to a block, both at least 1 (ConfigError).
  SampleOrder(std::int64_t samples, std::uint64_t seed, std::int64_t block,
              std::int64_t together = shuffle_blocks_together);

  // The sample, in [0, samples()), at place `global_index` ≥ 0 of the endless sequence of epochs:
  // epoch global_index / samples(). About a microsecond.
  std::int64_t sample(std::int64_t global_index) const;

  // The ordered samples of step `step` (from 1) of `global_batch` samples: global indices
  // (step - 1) · global_batch … step · global_batch - 1, which may cross the end of an epoch.
  std::vector<std::int64_t> step_samples(std::int64_t step, std::int64_t global_batch) const;

  std::int64_t samples() const { return samples_; }

 private:
  std::int64_t samples_;
  std::uint64_t seed_;
  std::int64_t block_;
  std::int64_t together_;  // at most the number of blocks
  std::int64_t blocks_;    // rounded up to a multiple of together_
};

// A permutation of [0, size) as a function: a balanced Feistel network on the least power of four
// that is at least `size`, walked along its cycles until it is inside. Philox is its round
// function. The permutation differs by seed, epoch and `domain`.
std::int64_t permute(std::int64_t index, std::int64_t size, std::uint64_t seed, std::uint64_t epoch,
                     std::uint64_t domain);

}  // namespace garonne::data
