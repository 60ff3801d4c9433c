#include "data/fields/field_match.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "base/printable.hpp"
#include "data/fields/channel_units.hpp"

namespace garonne::data {
namespace {

// As within one folder: stored coordinates are rounded in several ways.
constexpr double tolerance_of_step = 0.01;

std::string other_coordinates(const FieldTraits& mine, const FieldTraits& other) {
  const std::size_t axes = std::min(mine.coordinates.size(), other.coordinates.size());
  for (std::size_t axis = 0; axis < axes; ++axis) {
    const std::vector<double>& here = mine.coordinates[axis];
    const std::vector<double>& there = other.coordinates[axis];
    if (here.size() != there.size()) continue;
    const double step = there.size() > 1 ? std::abs(there[1] - there[0]) : 1;
    for (std::size_t index = 0; index < here.size(); ++index) {
      if (std::abs(here[index] - there[index]) <= tolerance_of_step * step) continue;
      const std::string name =
          axis < mine.axes.size() ? printable(mine.axes[axis]) : fmt::format("axis {}", axis);
      return fmt::format(
          "has another grid: {} number {} is {}, and {} in {} ({} to {} against {} to "
          "{})",
          name, index, here[index], there[index], other.of, here.front(), here.back(),
          there.front(), there.back());
    }
  }
  return {};
}

std::string other_units(const FieldTraits& mine, const FieldTraits& other) {
  for (std::size_t place = 0; place < mine.channels.size(); ++place) {
    const auto found =
        std::find(other.channels.begin(), other.channels.end(), mine.channels[place]);
    if (found == other.channels.end()) continue;
    const auto there = static_cast<std::size_t>(found - other.channels.begin());
    if (place >= mine.units.size() || there >= other.units.size()) continue;
    if (same_units(mine.units[place], other.units[there])) continue;
    return fmt::format("has {} in {}, and {} in {}", printable(mine.channels[place]),
                       printable(mine.units[place]), printable(other.units[there]), other.of);
  }
  return {};
}

std::string other_step(const FieldTraits& mine, const FieldTraits& other) {
  if (same_step(mine.step, other.step)) return {};
  return fmt::format("has {}, and {} has {}", to_text(mine.step), other.of, to_text(other.step));
}

// Points and channels, as people write them.
std::string extent_of(const FieldDatasetInfo& info) {
  std::string text = fmt::format("{} points and channels {}", fmt::join(info.points, " x "),
                                 fmt::join(info.input_channels, ", "));
  if (info.target_channels != info.input_channels)
    text += fmt::format(" to {}", fmt::join(info.target_channels, ", "));
  return text;
}

}  // namespace

FieldTraits traits_of(const FieldDatasetInfo& info) {
  FieldTraits traits;
  traits.of = info.path;
  traits.axes = info.axes;
  traits.coordinates = info.coordinates;
  traits.channels = info.input_channels;
  traits.units = info.input_units;
  traits.step = step_of(info);
  for (std::size_t place = 0; place < info.target_channels.size(); ++place) {
    const std::string& channel = info.target_channels[place];
    if (std::find(traits.channels.begin(), traits.channels.end(), channel) != traits.channels.end())
      continue;
    traits.channels.push_back(channel);
    traits.units.push_back(info.target_units[place]);
  }
  return traits;
}

std::string difference_of(const FieldTraits& mine, const FieldTraits& other) {
  std::string difference = other_coordinates(mine, other);
  if (difference.empty()) difference = other_units(mine, other);
  return difference.empty() ? other_step(mine, other) : difference;
}

void expect_same_fields(const std::string& key, const FieldDatasetInfo& mine,
                        const FieldDatasetInfo& other, FramesAre frames) {
  if (mine.points != other.points || mine.input_channels != other.input_channels ||
      mine.target_channels != other.target_channels) {
    throw ConfigError(key, mine.path,
                      fmt::format("holds other fields than {}: {} against {}", other.path,
                                  extent_of(mine), extent_of(other)));
  }
  FieldTraits given = traits_of(mine);
  if (frames == FramesAre::States) given.step = {};
  const std::string difference = difference_of(given, traits_of(other));
  if (!difference.empty()) {
    throw ConfigError(key, mine.path,
                      difference +
                          "; what a model makes of such fields is wrong: give files of the "
                          "same grid, units and step in time");
  }
}

}  // namespace garonne::data
