#include "data/fields/field_index.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <glob.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <limits>
#include <memory>
#include <numeric>

#include "base/contains.hpp"
#include "base/counted.hpp"
#include "base/error.hpp"
#include "base/printable.hpp"
#include "data/fields/channel_units.hpp"
#include "data/fields/field_join.hpp"
#include "data/hdf5/foreign_reader.hpp"
#include "data/zarr/zarr_store.hpp"

namespace garonne::data {
namespace {

constexpr const char* virtual_suffix = ".h5v";
constexpr std::array suffixes = {".h5", ".hdf5", ".he5", ".nc", ".nc4", virtual_suffix};

bool is_data_file(const std::filesystem::path& path) {
  return std::find(suffixes.begin(), suffixes.end(), path.extension().string()) != suffixes.end() &&
         path.filename().string().front() != '.';
}

// Whether a step in time is the dataset's. Means of months, quarters and years lie as many whole
// months apart, which differ in their days.
bool regular(double step, double base, const FieldFile& file) {
  if (std::abs(step - base) <= 1e-3 * std::abs(base)) return true;
  if (!file.dated) return false;
  const std::int64_t months = months_of_step(base, file.calendar);
  return months > 0 && months_of_step(step, file.calendar) == months;
}

// The middle of all steps of the first file that has two frames.
double usual_step(const std::vector<FieldFile>& files) {
  for (const FieldFile& file : files) {
    if (file.times.size() < 2) continue;
    std::vector<double> steps(file.times.size());
    std::adjacent_difference(file.times.begin(), file.times.end(), steps.begin());
    steps.erase(steps.begin());
    const auto middle = steps.begin() + static_cast<std::ptrdiff_t>(steps.size() / 2);
    std::nth_element(steps.begin(), middle, steps.end());
    return *middle;
  }
  // A frame a file: from one to the next.
  if (files.size() > 1 && !files[0].times.empty() && !files[1].times.empty()) {
    return files[1].times[0] - files[0].times[0];
  }
  return 0;
}

// Names come to terminals, reports and JSON from here on.
void make_printable(FieldFile& file) {
  for (auto* places : {&file.channels, &file.targets}) {
    for (FieldPlace& place : *places) place.channel = printable(place.channel);
  }
  for (std::string& axis : file.axes) axis = printable(axis);
  file.grid = printable(file.grid);
}

void check_times(const FieldFile& file) {
  for (std::size_t frame = 0; frame < file.times.size(); ++frame) {
    const bool ascends = frame == 0 || file.times[frame] > file.times[frame - 1];
    const bool next_trajectory =
        file.run_length > 0 && frame % static_cast<std::size_t>(file.run_length) == 0;
    if (std::isfinite(file.times[frame]) && (ascends || next_trajectory)) continue;
    const auto text = [&](std::size_t place) {
      return file.dated ? format_time(file.times[place], file.calendar)
                        : fmt::format("{}", file.times[place]);
    };
    throw IoError(file.path(),
                  frame == 0
                      ? fmt::format("its first time is {}", text(frame))
                      : fmt::format("times do not ascend: frame {} is at {} after {}; sort the "
                                    "frames by time, each once (xarray: sortby, drop_duplicates)",
                                    frame, text(frame), text(frame - 1)));
  }
}

std::vector<std::string> names_of(const std::vector<FieldPlace>& places) {
  std::vector<std::string> names;
  for (const FieldPlace& place : places) names.push_back(place.channel);
  return names;
}

void check_channels(const FieldFile& file, const FieldFile& first,
                    const std::vector<FieldPlace>& places, const std::vector<FieldPlace>& wanted) {
  if (names_of(places) == names_of(wanted)) return;
  for (const FieldPlace& place : wanted) {
    const auto same = [&](const FieldPlace& other) { return other.channel == place.channel; };
    if (std::none_of(places.begin(), places.end(), same)) {
      throw IoError(file.path(),
                    fmt::format("dataset \"{}\": channel \"{}\" is missing, which {} has",
                                printable(place.dataset), place.channel, first.path()));
    }
  }
  const std::string dataset = places.empty() ? "" : printable(places[0].dataset);
  throw IoError(file.path(),
                fmt::format("dataset \"{}\": its channels are {}, but those of {} are {}", dataset,
                            fmt::join(names_of(places), ", "), first.path(),
                            fmt::join(names_of(wanted), ", ")));
}

void check_units(const FieldFile& file, const FieldFile& first,
                 const std::vector<FieldPlace>& places, const std::vector<FieldPlace>& others) {
  for (std::size_t number = 0; number < places.size(); ++number) {
    const FieldPlace& place = places[number];
    const FieldPlace& other = others[number];
    if (place.units.empty() || other.units.empty() || place.usual_units || other.usual_units ||
        same_units(place.units, other.units)) {
      continue;
    }
    throw IoError(file.sources[place.source].path,
                  fmt::format("dataset \"{}\": channel \"{}\" is in \"{}\", but in \"{}\" in {}; "
                              "convert one of them, or correct its attribute \"units\"",
                              printable(place.dataset), place.channel, printable(place.units),
                              printable(other.units), first.sources[other.source].path));
  }
}

// That a file is of one dataset with the first one.
void check_against(const FieldFile& file, const FieldFile& first) {
  check_channels(file, first, file.channels, first.channels);
  check_channels(file, first, file.targets, first.targets);
  check_units(file, first, file.channels, first.channels);
  check_units(file, first, file.targets, first.targets);
  check_same_points(file, first);
}

// A run and its segment are kept for each trajectory, so that a file which declares them of next to
// nothing would take many times its own bytes.
constexpr std::size_t most_small_runs = 1 << 18;
constexpr double small_run = 32;  // values

void check_runs(const FieldIndex& index, const FieldFile& file) {
  if (index.runs.size() <= most_small_runs) return;
  double values = static_cast<double>(index.frames) * static_cast<double>(file.channels.size());
  for (const std::int64_t points : file.points) values *= static_cast<double>(points);
  if (values >= small_run * static_cast<double>(index.runs.size())) return;
  throw IoError(file.path(),
                fmt::format("dataset \"{}\": has more than {} runs or trajectories of "
                            "fewer than {} values each",
                            printable(file.channels[0].dataset), most_small_runs, small_run));
}

// Adds frames [begin, end) of a trajectory, to the last run where `goes_on`.
void add_segment(FieldIndex& index, const FramePlace& begin, std::int64_t frames, bool goes_on) {
  if (!goes_on || index.runs.empty()) {
    index.runs.push_back({index.segments.size(), 0, 0, index.frames});
  }
  FieldRun& run = index.runs.back();
  index.segments.push_back({begin, frames, run.frames});
  ++run.segments;
  run.frames += frames;
  index.frames += frames;
}

// Whether the frames of a file that begin a segment follow the last segment, of the file before.
bool goes_on_from_file_before(const FieldIndex& index, std::size_t number) {
  if (number == 0 || index.segments.empty()) return false;
  const FieldFile& before = index.files[number - 1];
  const FieldFile& file = index.files[number];
  for (const FieldFile* one : {&before, &file}) {
    if (one->trajectories != 1 || one->run_length != 0 || one->times.empty()) return false;
  }
  const FieldSegment& last = index.segments.back();
  return last.begin.file == number - 1 && last.begin.frame + last.frames == before.frames &&
         regular(file.times[0] - before.times.back(), index.frame_seconds, file);
}

// Of the frames whose times are in [begin, end).
void add_runs(FieldIndex& index, std::size_t number, std::pair<double, double> period) {
  const FieldFile& file = index.files[number];
  const auto wanted = [&](std::int64_t frame) {
    if (file.times.empty()) return true;
    const double time = file.times[static_cast<std::size_t>(frame)];
    return time >= period.first && time < period.second;
  };
  for (std::int64_t trajectory = 0; trajectory < file.trajectories; ++trajectory) {
    std::int64_t begin = 0;
    for (std::int64_t frame = 1; frame <= file.frames; ++frame) {
      const bool last = frame == file.frames;
      const bool cut = file.run_length > 0 && frame % file.run_length == 0;
      const auto step = [&] {
        const auto at = static_cast<std::size_t>(frame);
        return file.times[at] - file.times[at - 1];
      };
      const bool gap =
          !last && !cut && !file.times.empty() && !regular(step(), index.frame_seconds, file);
      const bool edge = !last && wanted(frame) != wanted(frame - 1);
      if (!last && !cut && !gap && !edge) continue;
      if (wanted(begin)) {
        add_segment(index, {number, trajectory, begin}, frame - begin,
                    begin == 0 && goes_on_from_file_before(index, number));
        check_runs(index, file);
      }
      begin = frame;
    }
  }
}

// The times of frames that are wanted.
std::pair<double, double> wanted_times(const FieldIndex& index, const FieldPeriod& period) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  if (period.everything()) return {-infinity, infinity};
  for (const FieldFile& file : index.files) {
    if (file.dated) continue;
    throw ConfigError(period.key(), period.text(),
                      fmt::format("wants dates, which {} does not have", file.path()));
  }
  return period.bounds(index.files[0].calendar);
}

void check_not_empty(const FieldIndex& index, const FieldPeriod& period) {
  if (index.frames > 0) return;
  const FieldFile& first = index.files.front();
  const FieldFile& last = index.files.back();
  if (period.everything()) {
    throw IoError(first.path(), fmt::format("no channel changes in time: it has {}, without a time",
                                            fmt::join(names_of(first.channels), ", ")));
  }
  throw ConfigError(period.key(), period.text(),
                    fmt::format("has no frame of the data, which are of {} to {}",
                                format_time(first.times.front(), first.calendar),
                                format_time(last.times.back(), last.calendar)));
}

void sort_by_time(FieldIndex& index) {
  const auto timed = [](const FieldFile& file) { return !file.times.empty(); };
  if (!std::all_of(index.files.begin(), index.files.end(), timed) || !index.files[0].dated) return;
  std::stable_sort(index.files.begin(), index.files.end(),
                   [](const FieldFile& one, const FieldFile& other) {
                     return one.times.front() < other.times.front();
                   });
  for (std::size_t number = 1; number < index.files.size(); ++number) {
    const FieldFile& before = index.files[number - 1];
    const FieldFile& file = index.files[number];
    if (!index.layout->continues || before.run_length > 0 || file.run_length > 0 ||
        file.times.front() > before.times.back()) {
      continue;
    }
    throw IoError(file.path(),
                  fmt::format("its times begin at {}, before those of {} end at {}",
                              format_time(file.times.front(), file.calendar), before.path(),
                              format_time(before.times.back(), before.calendar)));
  }
}

// Files of one layout in which members of an ensemble have the same times may overlap; where one
// begins within another and ends after it, they may as well have been meant to be one run.
void note_overlaps(FieldIndex& index) {
  if (index.layout->continues) return;
  const FieldFile* widest = nullptr;
  std::int64_t overlaps = 0;
  for (const FieldFile& file : index.files) {
    if (!file.dated || file.times.empty()) return;
    if (widest != nullptr && file.times.front() > widest->times.front() &&
        file.times.front() <= widest->times.back() && file.times.back() > widest->times.back()) {
      const auto after =
          std::upper_bound(file.times.begin(), file.times.end(), widest->times.back());
      if (++overlaps == 1) {
        index.notes.push_back(
            fmt::format("{} begins at {}, before {} ends at {}: {} of it within the times of "
                        "the other, and both are read, as runs of their own. Where the files "
                        "should go on from each other, cut one of them",
                        file.path(), format_time(file.times.front(), file.calendar), widest->path(),
                        format_time(widest->times.back(), widest->calendar),
                        counted(after - file.times.begin(), "frame")));
      }
    }
    if (widest == nullptr || file.times.back() > widest->times.back()) widest = &file;
  }
  if (overlaps > 1) {
    index.notes.back() += fmt::format("; {} overlap in this way", counted(overlaps + 1, "file"));
  }
}

}  // namespace

FramePlace FieldIndex::place(const FieldRun& run, std::int64_t offset) const {
  const auto begin = segments.begin() + static_cast<std::ptrdiff_t>(run.first_segment);
  const auto end = begin + static_cast<std::ptrdiff_t>(run.segments);
  const auto after =
      std::upper_bound(begin, end, offset, [](std::int64_t wanted, const FieldSegment& segment) {
        return wanted < segment.first_of_run;
      });
  const FieldSegment& segment = *(after - 1);
  FramePlace place = segment.begin;
  place.frame += offset - segment.first_of_run;
  return place;
}

const FieldRun& FieldIndex::run_of(std::int64_t frame) const {
  const auto after = std::upper_bound(
      runs.begin(), runs.end(), frame,
      [](std::int64_t wanted, const FieldRun& run) { return wanted < run.first_frame; });
  return *(after - 1);
}

double FieldIndex::time(const FramePlace& place) const {
  const FieldFile& file = files[place.file];
  if (file.times.empty()) return std::numeric_limits<double>::quiet_NaN();
  return file.times[static_cast<std::size_t>(place.frame)];
}

namespace {

// makani puts the virtual file beside the years that it is made of, which would be read twice.
void check_not_virtual_and_plain(const std::string& path, const std::vector<std::string>& found) {
  const auto is_virtual = [](const std::string& file) {
    return std::filesystem::path(file).extension() == virtual_suffix;
  };
  const auto one = std::find_if(found.begin(), found.end(), is_virtual);
  if (one == found.end() || std::all_of(found.begin(), found.end(), is_virtual)) return;
  throw IoError(path,
                fmt::format("this folder has virtual files ({}) beside others, which they may be "
                            "made of; name one of them, {}, or a pattern, {}",
                            virtual_suffix, *one, (std::filesystem::path(path) / "*.h5").string()));
}

}  // namespace

std::vector<std::string> list_field_files(const std::string& path) {
  std::vector<std::string> found;
  std::error_code ignored;
  if (ZarrStore::is_store(path)) return {path};
  if (std::filesystem::is_directory(path, ignored)) {
    std::vector<std::string> folders;
    for (const auto& entry : std::filesystem::directory_iterator(path, ignored)) {
      if (ZarrStore::is_store(entry.path().string())) {
        found.push_back(entry.path().string());
      } else if (entry.is_directory(ignored)) {
        folders.push_back(entry.path().filename().string());
      } else if (is_data_file(entry.path())) {
        found.push_back(entry.path().string());
      }
    }
    std::sort(folders.begin(), folders.end());
    if (found.empty()) {
      throw IoError(path,
                    fmt::format("no data files ({}) in this folder{}", fmt::join(suffixes, ", "),
                                folders.empty() ? ""
                                                : fmt::format("; it has the folders {}",
                                                              fmt::join(folders, ", "))));
    }
    check_not_virtual_and_plain(path, found);
  } else if (path.find_first_of("*?[") != std::string::npos &&
             !std::filesystem::exists(path, ignored)) {
    glob_t matches = {};
    if (glob(path.c_str(), 0, nullptr, &matches) == 0) {
      for (std::size_t index = 0; index < matches.gl_pathc; ++index) {
        found.emplace_back(matches.gl_pathv[index]);
      }
    }
    globfree(&matches);
    if (found.empty()) throw IoError(path, "no file matches this pattern");
  } else {
    found.push_back(path);
  }
  std::sort(found.begin(), found.end());
  return found;
}

FieldIndex index_field_files(const std::string& path, const std::string& layout,
                             const FieldPeriod& period, std::shared_ptr<ForeignReader> foreign) {
  FieldIndex index;
  if (!foreign) foreign = std::make_shared<ForeignReader>();
  for (const std::string& name : list_field_files(path)) {
    FieldFile described;
    if (ZarrStore::is_store(name)) {
      described = describe_zarr(name, layout);
      if (index.layout == nullptr) index.layout = &zarr_layout();
    } else {
      const Hdf5File file = Hdf5File::open(name, foreign);
      if (index.layout == nullptr) index.layout = &choose_field_layout(layout, file);
      described = index.layout->describe(file);
      described.sources = {{name, file.file_bytes()}};
    }
    make_printable(described);
    check_times(described);
    for (const std::string& note : described.notes) {
      if (!contains(index.notes, note)) index.notes.push_back(note);
    }
    index.files.push_back(std::move(described));
  }
  if (index.layout->joins && channels_are_apart(index.files)) {
    index.listed = index.files;
    JoinedFields joined = join_channels(std::move(index.files));
    index.files = std::move(joined.files);
    index.left_out = joined.left_out;
  }
  for (const FieldFile& file : index.files) check_against(file, index.files[0]);
  sort_by_time(index);
  note_overlaps(index);
  if (index.listed.empty()) index.listed = index.files;
  index.frame_seconds = usual_step(index.files);
  const auto wanted = wanted_times(index, period);
  for (std::size_t number = 0; number < index.files.size(); ++number) {
    add_runs(index, number, wanted);
  }
  check_not_empty(index, period);
  if (index.frame_seconds == 0) index.frame_seconds = index.files[0].frame_seconds;
  return index;
}

}  // namespace garonne::data
