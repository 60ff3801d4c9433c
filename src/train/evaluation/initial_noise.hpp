// What makes members of an ensemble out of one initial state. For the sources of this room.
#pragma once

#include <cstdint>
#include <span>

#include "data/statistics/field_statistics.hpp"

namespace garonne::train {

struct InitialNoise {
  double deviations = 0;  // of each channel
  std::uint64_t seed = 1;
};

// Adds white noise to states [frames, input channels, points…], to the channels that are predicted
// and to all frames alike: a function of seed, frame of the start, member, channel and point, and
// of nothing else. Member 0 has none.
void add_initial_noise(const InitialNoise& noise, const data::FieldDatasetInfo& info,
                       const data::FieldMoments& inputs, std::int64_t start_frame,
                       std::size_t member, std::span<float> states);

}  // namespace garonne::train
