#include "data/fields/field_dataset.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <set>
#include <utility>

#include "base/error.hpp"
#include "base/printable.hpp"
#include "data/fields/field_index.hpp"
#include "data/fields/field_reader.hpp"
#include "data/file_identity.hpp"

namespace garonne::data {

// Never changes once it is made.
struct FieldDataset::Description {
  FieldQuery query;
  FieldIndex index;
  FieldDatasetInfo info;
  std::vector<int> inputs;                 // chosen channels of a file
  std::vector<int> targets;                // of its targets where it has pairs
  std::vector<std::int64_t> first_sample;  // of each run, and their number at the end

  // The run that a sample lies in, and its first frame there.
  std::pair<const FieldRun&, std::int64_t> window(std::int64_t sample) const;
  FrameSlab rows_of(const FieldSlab& slab) const;
  bool masks() const { return query.missing == "mask"; }
  // A frame takes all sources of a file; none of them is to be opened for each frame anew.
  int most_open_files() const {
    std::size_t sources = 1;
    for (const FieldFile& file : index.files) sources = std::max(sources, file.sources.size());
    return std::max(open_file_limit, static_cast<int>(sources) + 1);
  }
};

struct FieldDataset::Parts {
  explicit Parts(std::shared_ptr<const Description> description)
      : described(std::move(description)),
        reader(described->most_open_files(), described->masks()) {}

  void read_place(const FramePlace& place, bool of_targets, const FrameSlab& rows, float* values);

  std::shared_ptr<const Description> described;
  FieldReader reader;
};

namespace {

void require(std::int64_t value, std::int64_t least, const char* key) {
  if (value >= least) return;
  throw ConfigError(key, fmt::format("{}", value), fmt::format("must be at least {}", least));
}

void check_query(const FieldQuery& query) {
  require(query.history, 0, "data.history");
  require(query.lead, 1, "data.lead");
  require(query.push_forward, 0, "train.push_forward");
  require(query.rollout, 1, "train.rollout");
  require(query.stride, 1, "data.stride");
  if (query.missing != "refuse" && query.missing != "mask") {
    throw ConfigError("data.missing", query.missing, "must be refuse or mask");
  }
  const std::vector<std::string> names = field_layout_names();
  if (query.layout != "auto" &&
      std::find(names.begin(), names.end(), query.layout) == names.end()) {
    throw ConfigError("data.layout", query.layout,
                      fmt::format("known are auto, {}", fmt::join(names, ", ")));
  }
}

// What makes a window longer, by the key of the run file.
struct KeyInTime {
  const char* name;
  std::int64_t value;
  std::int64_t least;
};

// Those that ask for more than a step from one frame to the next.
std::vector<KeyInTime> longer_than_least(const FieldQuery& query) {
  std::vector<KeyInTime> keys = {{"data.history", query.history, 0},
                                 {"data.lead", query.lead, 1},
                                 {"train.push_forward", query.push_forward, 0},
                                 {"train.rollout", query.rollout, 1}};
  std::erase_if(keys, [](const KeyInTime& key) { return key.value == key.least; });
  return keys;
}

// For pairs.
void expect_no_time(const FieldQuery& query) {
  const std::vector<KeyInTime> keys = longer_than_least(query);
  if (keys.empty()) return;
  std::vector<std::string> wanted;
  for (const KeyInTime& key : keys) wanted.push_back(fmt::format("{} = {}", key.name, key.least));
  throw ConfigError(
      keys[0].name, fmt::format("{}", keys[0].value),
      fmt::format("{} holds pairs without time: set {}", query.path, fmt::join(wanted, ", ")));
}

// Frames that a window takes from its first to its last; the largest number where there are more.
std::int64_t window_frames(const FieldQuery& query, bool pairs) {
  if (pairs) return 1;
  std::int64_t steps = 0;
  std::int64_t frames = 0;
  if (__builtin_add_overflow(query.history, query.rollout, &steps) ||
      __builtin_add_overflow(steps, query.push_forward, &steps) ||
      __builtin_mul_overflow(steps, query.lead, &frames) ||
      frames == std::numeric_limits<std::int64_t>::max()) {
    return std::numeric_limits<std::int64_t>::max();
  }
  return frames + 1;
}

// What there is instead of a channel: those of its name on levels, as "t500" or "t_500" of "t", or
// all.
std::string instead_of(const std::string& name, const std::vector<std::string>& known) {
  std::vector<std::string> levels;
  for (const std::string& channel : known) {
    if (channel.size() > name.size() && channel.starts_with(name) &&
        channel.find_first_not_of("_0123456789.", name.size()) == std::string::npos)
      levels.push_back(channel);
  }
  if (levels.empty()) return fmt::format("there are {}", fmt::join(known, ", "));
  return fmt::format("there are {}, each a channel of its own: name those that are wanted",
                     fmt::join(levels, ", "));
}

// Indices of the channels `wanted` in `places`, which `key` names.
std::vector<int> choose(const FieldFile& file, const std::vector<FieldPlace>& places,
                        const std::vector<std::string>& wanted, const char* key) {
  std::vector<int> chosen;
  std::vector<std::string> known;
  for (std::size_t place = 0; place < places.size(); ++place) {
    known.push_back(places[place].channel);
    if (wanted.empty() && !places[place].constant) chosen.push_back(static_cast<int>(place));
  }
  for (auto named = wanted.begin(); named != wanted.end(); ++named) {
    const std::string& name = *named;
    if (std::find(wanted.begin(), named, name) != named)
      throw ConfigError(key, name, "is named twice");
    const auto found = std::find(known.begin(), known.end(), name);
    if (found == known.end()) {
      const bool in_one = std::all_of(places.begin(), places.end(), [&](const FieldPlace& place) {
        return place.dataset == places.front().dataset;
      });
      const std::string dataset =
          in_one && !places.empty()
              ? fmt::format("dataset \"{}\": ", printable(places.front().dataset))
              : "";
      throw IoError(file.path(), fmt::format("{}there is no channel \"{}\"; {}", dataset,
                                             printable(name), instead_of(name, known)));
    }
    chosen.push_back(static_cast<int>(found - known.begin()));
  }
  return chosen;
}

std::vector<std::string> names_of(const std::vector<FieldPlace>& places,
                                  const std::vector<int>& chosen) {
  std::vector<std::string> names;
  for (const int place : chosen) names.push_back(places[static_cast<std::size_t>(place)].channel);
  return names;
}

FieldFileInfo file_info(const FieldFile& file) {
  FieldFileInfo info;
  info.path = file.path();
  info.bytes = file.sources[0].bytes;
  info.trajectories = file.trajectories;
  info.frames = file.frames;
  info.storage = file.storage;
  if (!file.times.empty()) {
    info.first_time = file.times.front();
    info.last_time = file.times.back();
  }
  return info;
}

FieldDatasetInfo describe(const FieldQuery& query, const FieldIndex& index) {
  const FieldFile& first = index.files[0];
  FieldDatasetInfo info;
  info.path = query.path;
  info.layout = index.layout->name;
  for (const auto* places : {&first.channels, &first.targets}) {
    for (const FieldPlace& place : *places) info.channels.push_back(place.channel);
  }
  info.points = first.points;
  info.axes = first.axes;
  info.coordinates = first.coordinates;
  info.axis_texts = first.axis_texts;
  info.grid_mapping = first.grid_mapping;
  info.grid = first.grid;
  info.grid_reason = first.grid_reason;
  info.pairs = first.pairs();
  info.frames = index.frames;
  info.runs = static_cast<std::int64_t>(index.runs.size());
  info.has_times = first.dated;
  info.calendar = first.calendar;
  info.frame_seconds = index.frame_seconds;
  info.in_seconds = index.files[0].dated || index.files[0].in_seconds;
  info.statistics = first.statistics;
  info.input_frames = query.history + 1;
  info.between_frames = query.push_forward;
  info.target_frames = query.rollout;
  std::set<LeftOutVariable> left_out;
  for (const FieldFile& file : index.listed) {
    info.files.push_back(file_info(file));
    for (const LeftOutVariable& variable : file.left_out) {
      if (left_out.insert(variable).second) info.left_out_variables.push_back(variable);
    }
  }
  info.left_out = index.left_out;
  info.notes = index.notes;
  if (first.dated) {
    info.first_time = std::numeric_limits<double>::infinity();
    info.last_time = -info.first_time;
    for (const FieldSegment& segment : index.segments) {
      FramePlace last = segment.begin;
      last.frame += segment.frames - 1;
      info.first_time = std::min(info.first_time, index.time(segment.begin));
      info.last_time = std::max(info.last_time, index.time(last));
    }
  }
  return info;
}

}  // namespace

// --- sizes ---

std::int64_t FieldDatasetInfo::plane(std::int64_t rows) const {
  return std::accumulate(points.begin() + 1, points.end(), rows, std::multiplies<>());
}
std::int64_t FieldDatasetInfo::input_values(std::int64_t rows) const {
  return input_frames * static_cast<std::int64_t>(input_channels.size()) * plane(rows);
}
std::int64_t FieldDatasetInfo::between_values(std::int64_t rows) const {
  return between_frames * static_cast<std::int64_t>(target_channels.size()) * plane(rows);
}
std::int64_t FieldDatasetInfo::target_values(std::int64_t rows) const {
  return target_frames * static_cast<std::int64_t>(target_channels.size()) * plane(rows);
}

// --- opening ---

FieldDataset FieldDataset::open(const FieldQuery& query, std::shared_ptr<ForeignReader> foreign) {
  check_query(query);
  const auto description = std::make_shared<Description>();
  Description& made = *description;
  made.query = query;
  made.index = index_field_files(query.path, query.layout, query.period, std::move(foreign));
  const FieldFile& first = made.index.files[0];
  made.info = describe(query, made.index);
  const std::vector<FieldPlace>& targets = first.pairs() ? first.targets : first.channels;
  made.inputs = choose(first, first.channels, query.input_channels, "data.inputs");
  made.targets = choose(first, targets, query.target_channels, "data.targets");
  made.info.input_channels = names_of(first.channels, made.inputs);
  made.info.target_channels = names_of(targets, made.targets);
  for (const int place : made.targets) {
    const FieldPlace& target = targets[static_cast<std::size_t>(place)];
    made.info.target_units.push_back(printable(target.units));
    made.info.target_long_names.push_back(printable(target.long_name));
    made.info.target_standard_names.push_back(printable(target.standard_name));
  }
  for (const int place : made.inputs) {
    const FieldPlace& input = first.channels[static_cast<std::size_t>(place)];
    made.info.input_units.push_back(printable(input.units));
    made.info.input_long_names.push_back(printable(input.long_name));
    if (input.constant) made.info.constant_inputs.push_back(input.channel);
  }
  for (const int place : made.targets) {
    const FieldPlace& target = targets[static_cast<std::size_t>(place)];
    if (target.constant) {
      throw ConfigError("data.targets", target.channel,
                        "is the same at all times: use it as an input only");
    }
  }
  if (made.inputs.empty() || made.targets.empty()) {
    throw IoError(first.path(), "no channel changes in time; name the input and target channels");
  }
  if (first.pairs()) expect_no_time(query);

  const std::int64_t span = window_frames(query, first.pairs());
  std::int64_t longest = 0;
  for (const FieldRun& run : made.index.runs) {
    made.first_sample.push_back(made.info.samples);
    longest = std::max(longest, run.frames);
    if (run.frames >= span) made.info.samples += (run.frames - span) / query.stride + 1;
  }
  made.first_sample.push_back(made.info.samples);
  if (made.info.samples == 0 && query.windows) {
    std::vector<std::string> keys;
    for (const KeyInTime& key : longer_than_least(query))
      keys.push_back(fmt::format("{} = {}", key.name, key.value));
    throw IoError(query.path,
                  fmt::format("no sample: a window takes {} frames{}, but the longest "
                              "run of frames without a gap has {}",
                              span, keys.empty() ? "" : fmt::format(" ({})", fmt::join(keys, ", ")),
                              longest));
  }
  return FieldDataset(std::make_unique<Parts>(description));
}

FieldDataset FieldDataset::again() const {
  return FieldDataset(std::make_unique<Parts>(parts_->described));
}

FieldDataset::FieldDataset(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
FieldDataset::FieldDataset(FieldDataset&&) noexcept = default;
FieldDataset& FieldDataset::operator=(FieldDataset&&) noexcept = default;
FieldDataset::~FieldDataset() = default;

const FieldDatasetInfo& FieldDataset::info() const {
  return parts_->described->info;
}
std::vector<FileIdentity> FieldDataset::identity() const {
  const Description& described = *parts_->described;
  std::vector<FieldFile> used = described.index.files;
  const auto only = [](const std::vector<FieldPlace>& places, const std::vector<int>& chosen) {
    std::vector<FieldPlace> kept;
    for (const int place : chosen) kept.push_back(places[static_cast<std::size_t>(place)]);
    return kept;
  };
  for (FieldFile& file : used) {
    file.targets = only(file.pairs() ? file.targets : file.channels, described.targets);
    file.channels = only(file.channels, described.inputs);
  }
  return identify_field_files(used);
}
bool FieldDataset::masks() const {
  return parts_->described->masks();
}
int FieldDataset::open_files() const {
  return parts_->reader.open_files();
}
std::int64_t FieldDataset::values_read() const {
  return parts_->reader.values_read();
}

// --- reading ---

std::pair<const FieldRun&, std::int64_t> FieldDataset::Description::window(
    std::int64_t sample) const {
  const auto after = std::upper_bound(first_sample.begin(), first_sample.end() - 1, sample);
  const auto number = static_cast<std::size_t>(after - first_sample.begin()) - 1;
  return {index.runs[number], (sample - first_sample[number]) * query.stride};
}

FrameSlab FieldDataset::Description::rows_of(const FieldSlab& slab) const {
  const std::int64_t all = info.points[0];
  FrameSlab rows;
  rows.first_row = slab.first_row;
  rows.rows = slab.rows < 0 ? all - slab.first_row : slab.rows;
  if (rows.first_row < 0 || rows.rows < 1 || rows.first_row > all - rows.rows) {
    throw InternalError(fmt::format("rows {} to {} asked for, but there are {}", rows.first_row,
                                    rows.first_row + rows.rows, all));
  }
  return rows;
}

void FieldDataset::Parts::read_place(const FramePlace& place, bool of_targets,
                                     const FrameSlab& rows, float* values) {
  FrameSlab slab = rows;
  slab.trajectory = place.trajectory;
  slab.frame = place.frame;
  reader.read(described->index.files[place.file], of_targets,
              of_targets ? described->targets : described->inputs, slab, values);
}

void FieldDataset::read(std::int64_t sample, FieldSlab slab, float* input, float* target,
                        float* between) {
  const Description& described = *parts_->described;
  const FieldDatasetInfo& about = described.info;
  if (sample < 0 || sample >= about.samples) {
    throw InternalError(
        fmt::format("sample {} asked for, but there are {}", sample, about.samples));
  }
  const auto [run, begin] = described.window(sample);
  const FrameSlab rows = described.rows_of(slab);
  const std::int64_t lead = described.query.lead;
  if (input != nullptr) {
    const std::int64_t frame_values = about.input_values(rows.rows) / about.input_frames;
    for (std::int64_t frame = 0; frame < about.input_frames; ++frame) {
      parts_->read_place(described.index.place(run, begin + frame * lead), false, rows,
                         input + frame * frame_values);
    }
  }
  const std::int64_t now = begin + described.query.history * lead;
  const std::int64_t frame_values = about.target_values(rows.rows) / about.target_frames;
  const std::int64_t steps = about.between_frames + about.target_frames;
  for (std::int64_t step = 0; step < steps; ++step) {
    const std::int64_t frame = step - about.between_frames;  // of the targets
    float* values = frame < 0 ? between : target;
    if (values == nullptr) continue;
    const std::int64_t offset = about.pairs ? now : now + (step + 1) * lead;
    parts_->read_place(described.index.place(run, offset), true, rows,
                       values + (frame < 0 ? step : frame) * frame_values);
  }
}

void FieldDataset::read_frame(std::int64_t frame, FieldSlab slab, float* input, float* target) {
  const Description& described = *parts_->described;
  expect(frame >= 0 && frame < described.info.frames, "a frame that is not there was asked for");
  const FieldRun& run = described.index.run_of(frame);
  const FramePlace place = described.index.place(run, frame - run.first_frame);
  const FrameSlab rows = described.rows_of(slab);
  if (input != nullptr) parts_->read_place(place, false, rows, input);
  if (target != nullptr) parts_->read_place(place, true, rows, target);
}

std::int64_t FieldDataset::frames_after(std::int64_t frame) const {
  const FieldRun& run = parts_->described->index.run_of(frame);
  return run.first_frame + run.frames - 1 - frame;
}

double FieldDataset::frame_time(std::int64_t frame) const {
  const FieldIndex& index = parts_->described->index;
  const FieldRun& run = index.run_of(frame);
  return index.time(index.place(run, frame - run.first_frame));
}

double FieldDataset::sample_time(std::int64_t sample) const {
  const Description& described = *parts_->described;
  const auto [run, begin] = described.window(sample);
  return described.index.time(
      described.index.place(run, begin + described.query.history * described.query.lead));
}

}  // namespace garonne::data
