#include "data/fields/field_join.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "base/printable.hpp"

namespace garonne::data {
namespace {

std::vector<std::string> changing_channels(const FieldFile& file) {
  std::vector<std::string> names;
  for (const FieldPlace& place : file.channels) {
    if (!place.constant) names.push_back(place.channel);
  }
  return names;
}

std::vector<std::string> shared(const std::vector<std::string>& one,
                                const std::vector<std::string>& other) {
  std::vector<std::string> both;
  for (const std::string& name : one) {
    if (std::find(other.begin(), other.end(), name) != other.end()) both.push_back(name);
  }
  return both;
}

// Stored times of different files are rounded differently.
double tolerance(double time, bool dated) {
  return dated ? 1.0 : 1e-6 * std::max(1.0, std::abs(time));
}

// Files of the same channels, in the order of time.
struct Group {
  std::vector<std::string> channels;
  std::vector<FieldFile> files;
};

// A frame of a group, as one goes through its files.
struct Cursor {
  const Group* group = nullptr;
  std::size_t number = 0;
  std::int64_t frame = 0;

  bool at_end() const { return number == group->files.size(); }
  const FieldFile& file() const { return group->files[number]; }
  double time() const { return file().times[static_cast<std::size_t>(frame)]; }
  void advance() {
    if (++frame < file().frames) return;
    frame = 0;
    ++number;
  }
  bool follows(const Cursor& before) const {
    return number == before.number && frame == before.frame + 1;
  }
};

// A channel that does not change, and where it is.
struct ConstantPlace {
  FieldSource source;
  FieldPlace place;
};

void check_pair(const FieldFile& file, const FieldFile& first) {
  check_same_points(file, first);
  if (file.frames == 0) return;
  if (file.dated != first.dated || file.calendar != first.calendar) {
    throw IoError(file.path(),
                  fmt::format("its times are in another calendar than those of {}", first.path()));
  }
  if (file.trajectories != first.trajectories) {
    throw IoError(file.path(), fmt::format("has {} members where {} has {}", file.trajectories,
                                           first.path(), first.trajectories));
  }
}

void sort_group(Group& group) {
  std::stable_sort(group.files.begin(), group.files.end(),
                   [](const FieldFile& one, const FieldFile& other) {
                     return one.times.front() < other.times.front();
                   });
  for (std::size_t number = 1; number < group.files.size(); ++number) {
    const FieldFile& before = group.files[number - 1];
    const FieldFile& file = group.files[number];
    if (file.times.front() > before.times.back()) continue;
    throw IoError(file.path(),
                  fmt::format("has {} at times that {} has too; where channels are in files of "
                              "their own, members of an ensemble want a folder each",
                              fmt::join(group.channels, ", "), before.path()));
  }
}

std::vector<Group> make_groups(std::vector<FieldFile> files) {
  std::vector<Group> groups;
  for (FieldFile& file : files) {
    const std::vector<std::string> channels = changing_channels(file);
    if (channels.empty()) continue;
    const auto found = std::find_if(groups.begin(), groups.end(),
                                    [&](const Group& group) { return group.channels == channels; });
    if (found != groups.end()) {
      found->files.push_back(std::move(file));
      continue;
    }
    for (const Group& group : groups) {
      const std::vector<std::string> both = shared(channels, group.channels);
      if (both.empty()) continue;
      throw IoError(file.path(),
                    fmt::format("has the channels {}, but {} has {}: {} in both; files hold either "
                                "the same channels or others",
                                fmt::join(channels, ", "), group.files[0].path(),
                                fmt::join(group.channels, ", "), fmt::join(both, ", ")));
    }
    groups.push_back({channels, {}});
    groups.back().files.push_back(std::move(file));
  }
  for (Group& group : groups) sort_group(group);
  return groups;
}

std::vector<ConstantPlace> find_constants(const std::vector<FieldFile>& files) {
  std::vector<ConstantPlace> constants;
  for (const FieldFile& file : files) {
    for (const FieldPlace& place : file.channels) {
      const auto known = [&](const ConstantPlace& other) {
        return other.place.channel == place.channel;
      };
      if (place.constant && std::none_of(constants.begin(), constants.end(), known)) {
        constants.push_back({file.sources[0], place});
      }
    }
  }
  return constants;
}

// The source's number, which is added where it is a new one.
std::size_t number_of(FieldFile& file, const FieldSource& source) {
  for (std::size_t number = 0; number < file.sources.size(); ++number) {
    if (file.sources[number].path == source.path) return number;
  }
  file.sources.push_back(source);
  return file.sources.size() - 1;
}

// A stretch that begins where the cursors stand, still without frames.
FieldFile begin_stretch(const std::vector<Cursor>& cursors,
                        const std::vector<ConstantPlace>& constants) {
  FieldFile made = cursors[0].file();
  made.channels.clear();
  made.sources.clear();
  made.times.clear();
  made.frames = 0;
  for (const Cursor& cursor : cursors) {
    const std::size_t source = number_of(made, cursor.file().sources[0]);
    for (FieldPlace place : cursor.file().channels) {
      if (place.constant) continue;
      place.source = source;
      place.first_frame = cursor.frame;
      made.channels.push_back(std::move(place));
    }
  }
  for (const ConstantPlace& constant : constants) {
    FieldPlace place = constant.place;
    place.source = number_of(made, constant.source);
    made.channels.push_back(std::move(place));
  }
  return made;
}

// How many different times the groups have.
std::int64_t count_times(const std::vector<Group>& groups) {
  std::vector<double> times;
  for (const Group& group : groups) {
    for (const FieldFile& file : group.files) {
      times.insert(times.end(), file.times.begin(), file.times.end());
    }
  }
  std::sort(times.begin(), times.end());
  const bool dated = groups[0].files[0].dated;
  const auto end = std::unique(times.begin(), times.end(), [&](double one, double other) {
    return other - one <= tolerance(one, dated);
  });
  return end - times.begin();
}

}  // namespace

void check_same_points(const FieldFile& file, const FieldFile& first) {
  if (file.points != first.points) {
    throw IoError(file.path(),
                  fmt::format("dataset \"{}\": its points are {} ({}), but those of "
                              "{} are {}",
                              file.channels.empty() ? "" : printable(file.channels[0].dataset),
                              shape_text(file.points), fmt::join(file.axes, ", "), first.path(),
                              shape_text(first.points)));
  }
  if (file.coordinates.empty() || first.coordinates.empty()) return;
  for (std::size_t axis = 0; axis < file.points.size(); ++axis) {
    const std::vector<double>& mine = file.coordinates[axis];
    const std::vector<double>& others = first.coordinates[axis];
    const double step = others.size() > 1 ? std::abs(others[1] - others[0]) : 1;
    for (std::size_t index = 0; index < std::min(mine.size(), others.size()); ++index) {
      if (std::abs(mine[index] - others[index]) <= 0.01 * step) continue;
      throw IoError(file.path(),
                    fmt::format("its grid is another one: {} number {} is {}, but {} "
                                "in {}",
                                file.axes[axis], index, mine[index], others[index], first.path()));
    }
  }
}

bool channels_are_apart(const std::vector<FieldFile>& files) {
  std::vector<std::vector<std::string>> kinds;
  for (const FieldFile& file : files) {
    std::vector<std::string> channels = changing_channels(file);
    // A file of nothing but orography belongs to any other.
    if (channels.empty() && files.size() > 1) return true;
    const auto apart = [&](const auto& kind) { return shared(kind, channels).empty(); };
    if (std::any_of(kinds.begin(), kinds.end(), apart)) return true;
    if (std::find(kinds.begin(), kinds.end(), channels) == kinds.end()) {
      kinds.push_back(std::move(channels));
    }
  }
  return false;
}

JoinedFields join_channels(std::vector<FieldFile> files) {
  const auto changes = [](const FieldFile& file) { return !changing_channels(file).empty(); };
  const auto first = std::find_if(files.begin(), files.end(), changes);
  if (first == files.end()) return {std::move(files), 0};
  for (const FieldFile& file : files) check_pair(file, *first);
  const std::vector<ConstantPlace> constants = find_constants(files);
  const std::vector<Group> groups = make_groups(std::move(files));
  std::vector<Cursor> cursors;
  for (const Group& group : groups) cursors.push_back({&group, 0, 0});
  const bool dated = groups[0].files[0].dated;
  const auto at_end = [](const Cursor& cursor) { return cursor.at_end(); };

  JoinedFields joined;
  std::int64_t frames = 0;
  std::vector<Cursor> before;
  while (std::none_of(cursors.begin(), cursors.end(), at_end)) {
    double latest = cursors[0].time();
    for (const Cursor& cursor : cursors) latest = std::max(latest, cursor.time());
    bool together = true;
    for (Cursor& cursor : cursors) {
      if (cursor.time() >= latest - tolerance(latest, dated)) continue;
      cursor.advance();
      together = false;
    }
    if (!together) continue;
    bool goes_on = !before.empty();
    for (std::size_t number = 0; goes_on && number < cursors.size(); ++number) {
      goes_on = cursors[number].follows(before[number]);
    }
    if (!goes_on) joined.files.push_back(begin_stretch(cursors, constants));
    joined.files.back().times.push_back(cursors[0].time());
    ++joined.files.back().frames;
    ++frames;
    before = cursors;
    for (Cursor& cursor : cursors) cursor.advance();
  }
  if (frames == 0) {
    const auto& other = groups.back();
    throw IoError(other.files[0].path(),
                  fmt::format("no time at which there is {} is also one of {}: {} channels of "
                              "different files have no frame in common",
                              other.channels[0], groups[0].files[0].path(), groups.size()));
  }
  joined.left_out = count_times(groups) - frames;
  return joined;
}

}  // namespace garonne::data
