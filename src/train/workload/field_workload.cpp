#include "train/workload/field_workload.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <system_error>
#include <utility>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/sphere_grid.hpp"
#include "data/fields/field_match.hpp"
#include "data/fields/field_stream.hpp"
#include "data/file_identity.hpp"
#include "nn/fields/row_runs.hpp"
#include "nn/model_kind.hpp"
#include "train/workload/field_manifest.hpp"

namespace garonne::train {
namespace {

std::vector<std::string> split_names(const std::string& text) {
  std::vector<std::string> names;
  std::istringstream stream(text);
  for (std::string name; std::getline(stream, name, ',');) {
    const std::size_t first = name.find_first_not_of(' ');
    if (first != std::string::npos)
      names.push_back(name.substr(first, name.find_last_not_of(' ') - first + 1));
  }
  return names;
}

// What a model takes of a batch.
exec::HostBatch host_batch(data::FieldBatch loaded) {
  exec::HostBatch batch;
  batch.samples = std::move(loaded.samples);
  const auto add = [&](const char* name, std::vector<float>& values) {
    if (!values.empty()) batch.fields[name] = std::move(values);
  };
  add("input", loaded.input);
  add("target", loaded.target);
  add("mask", loaded.mask);
  return batch;
}

class FieldBatches final : public BatchStream {
 public:
  FieldBatches(std::vector<int> micro_batches, data::FieldStream stream)
      : BatchStream(std::move(micro_batches)), stream_(std::move(stream)) {}

 private:
  Numbered take() override {
    data::FieldBatch loaded = stream_.next();
    const std::int64_t ordinal = loaded.ordinal;
    return {ordinal, host_batch(std::move(loaded))};
  }

  data::FieldStream stream_;
};

// The rows of one part of a cut field: a stream for each run of them, so that only they are read.
class CutFieldBatches final : public BatchStream {
 public:
  using OpenSlab = std::function<data::FieldStream(data::FieldSlab)>;

  CutFieldBatches(std::vector<int> micro_batches, const nn::FieldRows& rows,
                  std::int64_t points_in_row, const OpenSlab& open)
      : BatchStream(std::move(micro_batches)),
        slots_(static_cast<std::int64_t>(rows.slots.size())),
        points_in_row_(points_in_row),
        runs_(nn::runs_of(rows)) {
    for (const nn::RowRun& run : runs_) streams_.push_back(open({run.row, run.count}));
  }

 private:
  Numbered take() override {
    Numbered taken;
    for (std::size_t r = 0; r < runs_.size(); ++r) {
      data::FieldBatch part = streams_[r].next();
      expect(r == 0 || part.ordinal == taken.ordinal, "parts of different micro-batches came");
      taken.ordinal = part.ordinal;
      exec::HostBatch loaded = host_batch(std::move(part));
      for (const auto& [name, values] : loaded.fields)
        put(values, runs_[r], taken.batch.fields[name]);
      taken.batch.samples = std::move(loaded.samples);
    }
    return taken;
  }

  // [leading, rows of the run, points] to their slots of [leading, slots, points].
  void put(const std::vector<float>& loaded, const nn::RowRun& run, std::vector<float>& all) const {
    const std::int64_t plane = run.count * points_in_row_;
    const std::int64_t lines = static_cast<std::int64_t>(loaded.size()) / plane;
    all.resize(static_cast<std::size_t>(lines * slots_ * points_in_row_), 0.0F);
    for (std::int64_t line = 0; line < lines; ++line) {
      std::copy_n(loaded.data() + line * plane, plane,
                  all.data() + (line * slots_ + run.slot) * points_in_row_);
    }
  }

  std::int64_t slots_;
  std::int64_t points_in_row_;
  std::vector<nn::RowRun> runs_;
  std::vector<data::FieldStream> streams_;
};

// What makes the statistics of these channels and of the frames that are trained on, no others.
std::string statistics_command(const RunConfig& config, const data::FieldDatasetInfo& info) {
  const RunConfig::Data& keys = config.data;
  std::string command = fmt::format("garonne data statistics {} --output FILE.h5", info.path);
  if (keys.layout != "auto") command += " --layout " + keys.layout;
  if (!keys.period.empty()) command += " --period " + keys.period;
  if (!keys.inputs.empty() || !keys.targets.empty())
    command += fmt::format(" --channels {}", fmt::join(data::channels_of(info), ","));
  if (keys.lead != 1) command += fmt::format(" --lead {}", keys.lead);
  if (keys.missing != "refuse") command += " --missing " + keys.missing;
  if (keys.normalisation == "pointwise") command += " --pointwise";
  return command;
}

data::FieldStatistics statistics_of(const RunConfig& config, const data::FieldDatasetInfo& info) {
  const std::string& mode = config.data.normalisation;
  data::check_normalisation(mode);
  if (mode == "none") return {};
  const std::string source =
      config.data.statistics.empty() ? info.statistics : config.data.statistics;
  if (source.empty()) {
    throw ConfigError(
        "data.statistics", "",
        fmt::format("is needed for data.normalisation = {}: there are none beside {}; make them "
                    "with `{}`, or set data.normalisation = none",
                    mode, info.path, statistics_command(config, info)));
  }
  return data::choose_statistics(data::load_field_summaries(source, info, config.data.lead), mode,
                                 info, source);
}

std::string hash_of(const data::FieldStatistics& statistics) {
  std::string text = statistics.mode;
  const auto add = [&](const std::vector<float>& values) {
    text.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  };
  for (const auto* moments : {&statistics.inputs, &statistics.targets}) {
    text += fmt::format(" {} {} ", moments->channels, moments->points);
    add(moments->mean);
    add(moments->deviation);
    add(moments->difference_deviation);
  }
  return hash_text(text);
}

// How many points the field has along each axis, as people write it.
std::string extent(const std::vector<std::int64_t>& points) {
  return fmt::format("{}", fmt::join(points, " x "));
}

bool share_files(const data::FieldDatasetInfo& one, const data::FieldDatasetInfo& other) {
  std::set<std::string> paths;
  const auto place = [](const data::FieldFileInfo& file) {
    std::error_code error;
    const auto canonical = std::filesystem::weakly_canonical(file.path, error);
    return error ? file.path : canonical.string();
  };
  for (const data::FieldFileInfo& file : one.files) paths.insert(place(file));
  return std::any_of(other.files.begin(), other.files.end(),
                     [&](const auto& file) { return paths.contains(place(file)); });
}

// By what headers say, since contents have to be read.
bool may_be_copies(const data::FieldDatasetInfo& one, const data::FieldDatasetInfo& other) {
  const auto alike = [](const data::FieldFileInfo& a, const data::FieldFileInfo& b) {
    return a.bytes == b.bytes && a.frames == b.frames && a.first_time == b.first_time &&
           a.last_time == b.last_time;
  };
  return std::any_of(one.files.begin(), one.files.end(), [&](const auto& file) {
    return std::any_of(other.files.begin(), other.files.end(),
                       [&](const auto& candidate) { return alike(file, candidate); });
  });
}

bool share_contents(const data::FieldDataset& one, const data::FieldDataset& other) {
  std::set<std::string> contents;
  for (const data::FileIdentity& file : one.identity()) contents.insert(file.contents);
  const std::vector<data::FileIdentity> others = other.identity();
  return std::any_of(others.begin(), others.end(),
                     [&](const auto& file) { return contents.contains(file.contents); });
}

// Whether a file, a folder, or that of a pattern was there and is no longer.
bool is_gone(const std::string& path) {
  if (path.empty()) return false;
  const std::filesystem::path place(path);
  const bool pattern = path.find_first_of("*?[") != std::string::npos;
  std::error_code error;
  return !std::filesystem::exists(place, error) &&
         !(pattern && std::filesystem::exists(place.parent_path(), error));
}

data::FieldDataset open_training(const RunConfig& config) {
  if (config.data.path.empty()) {
    throw ConfigError("data.path", "",
                      "is missing: the fields to train on (see `garonne data --help`)");
  }
  return data::FieldDataset::open(field_query(config, Part::Training));
}

}  // namespace

data::FieldQuery field_query(const RunConfig& config, Part part) {
  data::FieldQuery query;
  const bool validation = part == Part::Validation;
  query.path =
      validation && !config.data.validation.empty() ? config.data.validation : config.data.path;
  query.period =
      validation ? data::FieldPeriod::parse("data.validation_period", config.data.validation_period)
                 : data::FieldPeriod::parse("data.period", config.data.period);
  query.layout = config.data.layout;
  query.input_channels = split_names(config.data.inputs);
  query.target_channels = split_names(config.data.targets);
  query.history = config.data.history;
  query.lead = config.data.lead;
  query.push_forward = config.train.push_forward;
  query.rollout = config.train.rollout;
  query.stride = config.data.stride;
  query.missing = config.data.missing;
  return query;
}

bool has_validation(const RunConfig& config) {
  return !config.data.validation.empty() || !config.data.validation_period.empty();
}

nn::FieldShape field_shape(const RunConfig& config, const data::FieldDatasetInfo& info,
                           const data::FieldStatistics& statistics) {
  nn::FieldShape shape;
  shape.input_channels = info.input_frames * static_cast<std::int64_t>(info.input_channels.size());
  shape.target_channels = static_cast<std::int64_t>(info.target_channels.size());
  shape.points = info.points;
  shape.grid = info.grid;
  shape.rollout = config.train.rollout;
  shape.push_forward = config.train.push_forward;
  shape.masked = config.data.missing == "mask";
  shape.noise = config.train.noise;
  shape.members = config.train.members;
  // Of a regional grid the axes may be a projection's, in metres.
  const bool of_degrees =
      is_sphere_grid(info.grid) ||
      (info.grid == "regional" && !info.axes.empty() && info.axes[0] == "latitude");
  if (of_degrees && !info.coordinates.empty())
    shape.area_weights = data::area_weights(info.coordinates.front());
  if (config.train.loss == "area-l2" && is_sphere_grid(info.grid) && shape.area_weights.empty()) {
    throw ConfigError(
        "train.loss", config.train.loss,
        fmt::format("wants the latitudes of the rows, which nothing tells of {}; give them in "
                    "data.json beside the files (coords: lat, lon), or set train.loss = squared-l2",
                    info.path));
  }
  if (config.train.decode) {
    if (statistics.mode == "none") {
      throw ConfigError("train.decode", "true", "means nothing with data.normalisation = none");
    }
    shape.target_mean.assign(statistics.targets.mean.begin(), statistics.targets.mean.end());
    shape.target_deviation.assign(statistics.targets.deviation.begin(),
                                  statistics.targets.deviation.end());
  }
  return shape;
}

FieldWorkload::FieldWorkload(const RunConfig& config, const std::string& validation_key,
                             const nlohmann::json& saved)
    : loss_(config.train.loss == "auto" ? nn::model_kind(config.model.kind).losses.front()
                                        : config.train.loss) {
  const std::string where = "the manifest of " + config.run.directory;
  std::optional<data::FieldDatasetInfo> before;
  if (is_gone(config.data.path)) before = info_in_manifest(saved, config.data.history + 1, where);
  if (!before) training_ = open_training(config);
  info_ = before ? *before : training_->info();
  if (has_validation(config)) {
    validation_ = data::FieldDataset::open(field_query(config, Part::Validation));
    data::expect_same_fields(validation_key, validation_->info(), info_);
  }
  facts_.validation_samples = validation_ ? validation_->info().samples : 0;
  std::optional<data::FieldStatistics> kept;
  if (before || is_gone(config.data.statistics))
    kept = statistics_in_manifest(saved, config.data.normalisation, where);
  statistics_ = kept ? std::move(*kept) : statistics_of(config, info_);
  facts_.fields = field_shape(config, info_, statistics_);
}

std::string FieldWorkload::summary() const {
  std::string text =
      fmt::format("{} · {} · {} on {} points · {} samples", info_.path, info_.layout,
                  fmt::join(info_.input_channels, ", "), extent(info_.points), info_.samples);
  if (validation_) text += fmt::format(", {} for validation", validation_->info().samples);
  return text;
}

std::vector<std::string> FieldWorkload::notes() const {
  std::vector<std::string> notes = info_.notes;
  if (std::string note = overlap_note(); !note.empty()) notes.push_back(std::move(note));
  return notes;
}

std::string FieldWorkload::overlap_note() const {
  if (!validation_ || !training_) return "";
  const data::FieldDatasetInfo& other = validation_->info();
  if (!share_files(other, info_)) {
    return may_be_copies(other, info_) && share_contents(*validation_, *training_)
               ? fmt::format(
                     "{} holds what is trained on in {}: its loss and skill are of what the "
                     "model has seen",
                     other.path, info_.path)
               : "";
  }
  if (!info_.has_times) {
    return fmt::format(
        "{} is trained on, and validated with: loss and skill are of what the model has seen",
        other.path);
  }
  const double first = std::max(info_.first_time, other.first_time);
  const double last = std::min(info_.last_time, other.last_time);
  if (first > last) return "";
  return fmt::format(
      "{} is trained on, and validated with, from {} to {}: loss and skill are of what the model "
      "has seen; give data.period and data.validation_period dates apart",
      other.path, data::format_time(first, info_.calendar),
      data::format_time(last, info_.calendar));
}

nlohmann::json FieldWorkload::manifest() const {
  return manifest_of_fields(info_, statistics_);
}

std::string FieldWorkload::statistics_hash() const {
  return hash_of(statistics_);
}

std::string FieldWorkload::difference_from(const nlohmann::json& data,
                                           const std::string& checkpoint) const {
  // Checkpoints of before have channels alone.
  std::optional<data::FieldTraits> then = traits_in_manifest(data, checkpoint + "/manifest.json");
  if (!then) return {};
  then->of = checkpoint;
  return data::difference_of(data::traits_of(info_), *then);
}

dist::Facts FieldWorkload::contents() const {
  dist::Facts facts;
  if (training_) facts = data::file_facts("data.path", training_->identity());
  if (validation_) {
    dist::append(data::file_facts("data.validation", validation_->identity()), facts);
  }
  facts.push_back({"data.statistics", hash_of(statistics_),
                   dist::advise("give every rank a copy of the same statistics"), ""});
  return facts;
}

std::int64_t FieldWorkload::samples(Part part) const {
  if (part == Part::Training) return info_.samples;
  return validation_ ? validation_->info().samples : 0;
}

std::vector<ValidationSource> FieldWorkload::validation_sources() const {
  if (!validation_) return {};
  return {{.path = validation_->info().path, .samples = validation_->info().samples}};
}

std::unique_ptr<BatchStream> FieldWorkload::open(std::shared_ptr<data::Reader> reader, Part part,
                                                 StreamOrder order) const {
  const data::FieldParts parts = {
      .input = order.wants("input"), .target = order.wants("target"), .mask = order.wants("mask")};
  const auto open_slab = [&](data::FieldSlab slab) {
    return data::FieldStream(
        reader, part == Part::Training ? training_.value() : validation_.value(), slab, statistics_,
        order.samples_of, order.first_ordinal, order.end_ordinal, parts);
  };
  if (!order.rows.cut()) return std::make_unique<FieldBatches>(order.micro_batches, open_slab({}));
  return std::make_unique<CutFieldBatches>(order.micro_batches, order.rows, info_.plane(/*rows=*/1),
                                           open_slab);
}

}  // namespace garonne::train
