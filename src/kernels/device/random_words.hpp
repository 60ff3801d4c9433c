// The random words of elements; private to this room.
#pragma once

#include "base/philox.hpp"
#include "kernels/device/elementwise.hpp"
#include "kernels/dropout.hpp"

#include <cstdint>

namespace garonne::kernels::device {

// An index that is known only when it runs would put the block into memory.
KOKKOS_INLINE_FUNCTION std::uint32_t word_of(const PhiloxBlock& block, std::int64_t number) {
  const std::uint32_t first = number == 0 ? block.word[0] : block.word[1];
  const std::uint32_t second = number == 2 ? block.word[2] : block.word[3];
  return number < 2 ? first : second;
}

// words[i] = the word of element `first` + i of one sample: a group of four is computed once where
// the elements are its.
template <int count>
KOKKOS_FUNCTION void random_words(PhiloxKey key, std::uint64_t step, std::int64_t sample,
                                  std::int64_t first, Values<std::uint32_t, count>& words) {
  std::int64_t group = first / 4;
  PhiloxBlock block =
      philox_at(key, step, static_cast<std::uint64_t>(sample), static_cast<std::uint64_t>(group));
  if (count % 4 == 0 && first % 4 == 0) {
    for (int i = 0; i < count; i += 4) {
      if (i > 0) {
        block = philox_at(key, step, static_cast<std::uint64_t>(sample),
                          static_cast<std::uint64_t>(group + i / 4));
      }
      for (int j = 0; j < 4 && j < count; ++j) words[i + j] = block.word[j];
    }
    return;
  }
  for (int i = 0; i < count; ++i) {
    const std::int64_t element = first + i;
    if (element / 4 != group) {
      group = element / 4;
      block = philox_at(key, step, static_cast<std::uint64_t>(sample),
                        static_cast<std::uint64_t>(group));
    }
    words[i] = word_of(block, element % 4);
  }
}

// The same for elements of whole groups of four.
template <int count>
KOKKOS_FUNCTION void random_words_of_groups(PhiloxKey key, std::uint64_t step, std::int64_t sample,
                                            std::int64_t first,
                                            Values<std::uint32_t, count>& words) {
  static_assert(count % 4 == 0);
  GARONNE_UNROLLED
  for (int i = 0; i < count; i += 4) {
    const PhiloxBlock block = philox_at(key, step, static_cast<std::uint64_t>(sample),
                                        static_cast<std::uint64_t>(first / 4 + i / 4));
    GARONNE_UNROLLED
    for (int j = 0; j < 4; ++j) words[i + j] = block.word[j];
  }
}

KOKKOS_INLINE_FUNCTION std::uint64_t step_of(const Dropout& dropout) {
  return dropout.step_place == nullptr ? dropout.step : *dropout.step_place;
}

// values become 0 where their words drop them and `scale` times as large elsewhere.
template <int count, typename G>
KOKKOS_FUNCTION void drop_by(const Dropout& dropout, const Values<std::uint32_t, count>& words,
                             Values<G, count>& values) {
  const G scale = static_cast<G>(dropout.scale);
  for (int i = 0; i < count; ++i)
    values[i] = words[i] >= dropout.threshold ? values[i] * scale : G{0};
}

// The same by the words of elements `first` … of a sample.
template <int count, typename G>
KOKKOS_FUNCTION void drop(const Dropout& dropout, std::int64_t sample, std::int64_t first,
                          Values<G, count>& values) {
  if (dropout.threshold == 0) return;
  Values<std::uint32_t, count> words;
  random_words<count>(dropout.key, step_of(dropout), sample, first, words);
  drop_by<count>(dropout, words, values);
}

}  // namespace garonne::kernels::device
