#include "nn/operators/fourier_modes.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.hpp"

namespace garonne::nn {

std::vector<std::int64_t> frequencies_of(const RunConfig::Model& keys, std::int64_t modes,
                                         std::int64_t points, bool last) {
  const bool corners = keys.spectral_weights == "corners";
  std::int64_t first = 0;
  std::int64_t count = 0;
  if (last) {
    count = corners ? modes : modes / 2 + 1;
  } else {
    first = corners ? -modes : -(modes / 2);
    count = corners ? 2 * modes : modes;
  }
  const std::int64_t there = last ? points / 2 + 1 : points;
  if (count > there) {
    throw ConfigError("model.modes", fmt::format("{}", fmt::join(keys.modes, ",")),
                      fmt::format("keeps {} frequencies of an axis of {} points (padding included) "
                                  "that has {}; give fewer modes",
                                  count, points, there));
  }
  std::vector<std::int64_t> frequencies;
  for (std::int64_t k = 0; k < count; ++k) frequencies.push_back(first + k);
  return frequencies;
}

std::int64_t most_modes(const RunConfig::Model& keys, std::int64_t points, bool last) {
  if (keys.spectral_weights != "corners") return points;
  return last ? points / 2 + 1 : points / 2;
}

}  // namespace garonne::nn
