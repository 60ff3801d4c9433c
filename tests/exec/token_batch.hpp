// What small GPTs learn in tests.
#pragma once

#include <cstdint>

#include "exec/executor.hpp"

namespace garonne::exec {

// Tokens and targets of samples [first, first + batch): a formula of their numbers, so that they
// are the same however a step is cut.
inline HostBatch token_batch(std::int64_t first, std::int64_t batch, std::int64_t sequence,
                             std::int64_t vocabulary) {
  HostBatch made;
  for (std::int64_t sample = first; sample < first + batch; ++sample) {
    made.samples.push_back(1000 + sample * 7);
    for (std::int64_t t = 0; t <= sequence; ++t) {
      const std::int64_t token = (sample * 13 + t * t * 5 + t) % vocabulary;
      if (t < sequence) made.values["tokens"].push_back(token);
      if (t > 0) made.values["targets"].push_back(token);
    }
  }
  return made;
}

}  // namespace garonne::exec
