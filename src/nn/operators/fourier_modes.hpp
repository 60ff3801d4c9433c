// Which frequencies of an axis Fourier neural operators keep.
#pragma once

#include <cstdint>
#include <vector>

#include "base/config.hpp"

namespace garonne::nn {

// The frequencies that `modes` of model.modes stand for along one axis of `points` points, as
// model.spectral_weights says; ascending, none negative on the last axis. Throws ConfigError
// (model.modes) where the axis has fewer.
std::vector<std::int64_t> frequencies_of(const RunConfig::Model& keys, std::int64_t modes,
                                         std::int64_t points, bool last);

// The most modes that do not throw; at least 1 from two points on.
std::int64_t most_modes(const RunConfig::Model& keys, std::int64_t points, bool last);

}  // namespace garonne::nn
