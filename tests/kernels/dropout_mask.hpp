// The slow obvious mask of dropout.
#pragma once

#include "base/philox.hpp"
#include "kernels/dropout.hpp"

#include <cstdint>

namespace garonne::kernels::test {

// What dropout multiplies an element of a sample with: 0 or 1 / (1 - probability).
inline double dropout_factor(const Dropout& dropout, std::int64_t sample, std::int64_t element) {
  if (dropout.threshold == 0) return 1;
  const auto index = static_cast<std::uint64_t>(element);
  const PhiloxBlock block =
      philox_at(dropout.key, dropout.step, static_cast<std::uint64_t>(sample), index / 4);
  return block.word[index % 4] >= dropout.threshold ? dropout.scale : 0;
}

}  // namespace garonne::kernels::test
