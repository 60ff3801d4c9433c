#include "train/evaluation/initial_noise.hpp"

#include <algorithm>

#include "data/generate/normal_numbers.hpp"

namespace garonne::train {

void add_initial_noise(const InitialNoise& noise, const data::FieldDatasetInfo& info,
                       const data::FieldMoments& inputs, std::int64_t start_frame,
                       std::size_t member, std::span<float> states) {
  if (member == 0) return;
  const auto points = static_cast<std::size_t>(info.plane(info.points[0]));
  const std::size_t channels = info.input_channels.size();
  const std::size_t frames = states.size() / (channels * points);
  const auto& targets = info.target_channels;
  for (std::size_t channel = 0; channel < channels; ++channel) {
    const std::string& name = info.input_channels[channel];
    if (std::find(targets.begin(), targets.end(), name) == targets.end()) continue;
    const PhiloxKey key = philox_key(noise.seed, "forecast " + name);
    for (std::size_t point = 0; point < points; ++point) {
      const auto [one, other] =
          data::normal_pair(key, member, static_cast<std::uint64_t>(start_frame), point / 2);
      // Data that are not normalised have no deviations.
      float deviation = 1;
      if (!inputs.deviation.empty()) {
        deviation = inputs.deviation[inputs.points.empty() ? channel : channel * points + point];
      }
      const auto added =
          static_cast<float>(noise.deviations * (point % 2 == 0 ? one : other)) * deviation;
      for (std::size_t frame = 0; frame < frames; ++frame) {
        states[(frame * channels + channel) * points + point] += added;
      }
    }
  }
}

}  // namespace garonne::train
