// What holds for every description of a file of fields, whatever its layout, and how such a file is
// read.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "data/fields/field_reader.hpp"
#include "data/layouts/field_layout.hpp"
#include "fuzz/fuzz_target.hpp"

namespace garonne::fuzz {

inline void check_description(const data::FieldFile& file) {
  hold(!file.channels.empty(), "a file has channels");
  hold(file.channels.size() <= static_cast<std::size_t>(data::most_channels) * 2 &&
           file.targets.size() <= static_cast<std::size_t>(data::most_channels),
       "channels can be counted");
  hold(!file.points.empty() && (file.axes.empty() || file.points.size() == file.axes.size()),
       "points have axes");
  for (const std::int64_t size : file.points) hold(size >= 1, "an axis has points");
  hold(file.frames >= 0 && file.trajectories >= 1, "there are frames of trajectories");
  hold(file.times.empty() || static_cast<std::int64_t>(file.times.size()) == file.frames,
       "every frame has a time");
  for (std::size_t frame = 0; frame < file.times.size(); ++frame)
    hold(std::isfinite(file.times[frame]), "times are numbers");
  for (std::size_t axis = 0; axis < file.coordinates.size(); ++axis) {
    hold(file.coordinates[axis].empty() ||
             static_cast<std::int64_t>(file.coordinates[axis].size()) == file.points[axis],
         "every point of an axis has a coordinate");
  }
  hold(file.groups.empty() || static_cast<std::int64_t>(file.groups.size()) == file.trajectories,
       "every trajectory has a group");
  hold(file.invalid.empty() || static_cast<std::int64_t>(file.invalid.size()) ==
                                   file.frames * static_cast<std::int64_t>(file.channels.size()),
       "what is invalid is said of every frame and channel");
  for (const auto* places : {&file.channels, &file.targets}) {
    for (const data::FieldPlace& place : *places)
      hold(place.source < file.sources.size() && place.space_axis >= 0, "a channel has a place");
  }
}

// All channels of some frames at both ends of a file.
inline void read_some_frames(const data::FieldFile& file) {
  constexpr std::int64_t most_values = 1 << 18;
  std::vector<int> channels(file.channels.size());
  std::vector<int> targets(file.targets.size());
  std::iota(channels.begin(), channels.end(), 0);
  std::iota(targets.begin(), targets.end(), 0);
  const auto count = static_cast<std::int64_t>(std::max(channels.size(), targets.size()));
  std::int64_t values = count;
  for (const std::int64_t size : file.points) {
    if (size > most_values / values) return;
    values *= size;
  }
  data::FieldReader reader(4, /*mask=*/true);
  std::vector<float> frame(static_cast<std::size_t>(values));
  for (const bool end : {false, true}) {
    data::FrameSlab slab;
    slab.trajectory = end ? file.trajectories - 1 : 0;
    slab.frame = end ? std::max<std::int64_t>(file.frames - 1, 0) : 0;
    slab.rows = file.points[0];
    reader.read(file, false, channels, slab, frame.data());
    if (file.pairs()) reader.read(file, true, targets, slab, frame.data());
  }
  // A single row without leave to be missing.
  data::FieldReader strict(1, /*mask=*/false);
  data::FrameSlab row;
  row.first_row = file.points[0] - 1;
  row.rows = 1;
  strict.read(file, false, channels, row, frame.data());
}

}  // namespace garonne::fuzz
