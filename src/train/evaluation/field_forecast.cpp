#include "train/evaluation/field_forecast.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "base/contains.hpp"
#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/progress.hpp"
#include "base/whole_number.hpp"
#include "data/fields/cf_time.hpp"
#include "data/fields/field_match.hpp"
#include "data/file_identity.hpp"
#include "data/generate/shared_work.hpp"
#include "train/evaluation/field_predictor.hpp"
#include "train/evaluation/initial_noise.hpp"
#include "train/evaluation/missing_values.hpp"
#include "train/evaluation/option_check.hpp"

namespace garonne::train {
namespace {

// Frames before `frame` in its run.
std::int64_t frames_before(const data::FieldDataset& dataset, std::int64_t frame) {
  std::int64_t before = 0;
  while (frame > 0 && dataset.frames_after(frame - 1) == dataset.frames_after(frame) + 1) {
    --frame;
    ++before;
  }
  return before;
}

// Whether channels that are neither predicted nor the same at all times go into the model.
bool takes_from_data(const data::FieldDatasetInfo& info) {
  return std::any_of(
      info.input_channels.begin(), info.input_channels.end(), [&](const std::string& channel) {
        return !contains(info.target_channels, channel) && !contains(info.constant_inputs, channel);
      });
}

std::string contents_of(const data::FieldDataset& dataset, const FieldWorkload& workload,
                        const data::FieldStep& step) {
  std::string text = workload.statistics_hash() + " " + data::to_text(step);
  for (const data::FileIdentity& file : dataset.identity()) text += "\n" + file.contents;
  return hash_text(text);
}

std::string as_bytes(std::span<const float> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

void from_bytes(const std::string& bytes, std::span<float> values) {
  expect(bytes.size() == values.size_bytes(), "a forecast of another size came");
  std::memcpy(values.data(), bytes.data(), bytes.size());
}

}  // namespace

// --- what is forecast ---

FieldForecast::FieldForecast(TrainedModel& trained, const FieldWorkload& workload, std::string run,
                             const FieldForecastOptions& options)
    : trained_(trained), workload_(workload) {
  require_positive("--steps", options.steps);
  require_positive("--members", options.members);
  if (!(options.noise >= 0) || !std::isfinite(options.noise)) {
    throw ConfigError("--noise", fmt::format("{}", options.noise), "must be 0 or more");
  }
  const RunConfig& config = trained.config;
  query_ = field_query(config, has_validation(config) ? Part::Validation : Part::Training);
  // Any state will do to start from, and none needs another after it.
  query_.period = {};
  query_.windows = false;
  query_.push_forward = 0;
  query_.rollout = query_.stride = 1;
  if (!options.data.empty()) query_.path = options.data;
  const data::FieldDataset dataset = data::FieldDataset::open(query_);
  const data::FieldDatasetInfo& info = dataset.info();
  if (info.pairs) {
    throw ConfigError("garonne forecast", query_.path,
                      "holds pairs, which have no time to forecast; `garonne eval` compares what "
                      "the model makes of them");
  }
  data::expect_same_fields("--data", info, workload.info(), data::FramesAre::States);
  const data::FieldStep own = data::step_of(info);
  settle_step(own);
  const data::FieldStep& step = setting_.frame_step;
  // Whether the frames of the files are the steps of the model.
  const bool goes_on = data::same_step(own, step);
  if (query_.history > 0 && !goes_on) {
    throw ConfigError(
        "--data", query_.path,
        fmt::format("has {}, and the model takes frames before its start (data.history) in {}",
                    data::to_text(own), data::to_text(step)));
  }
  setting_.run = std::move(run);
  setting_.step = trained.step;
  setting_.model = trained.identity;
  setting_.contents = contents_of(dataset, workload, step);
  setting_.fields = info;
  setting_.leads = options.steps;
  setting_.lead_seconds = step.in_seconds ? step.length * static_cast<double>(query_.lead) : 0;
  setting_.members = options.members;
  setting_.noise = options.members > 1 ? options.noise : 0;
  setting_.seed = options.seed;
  setting_.compression = options.compression;
  std::vector<std::string> from = options.from;
  if (from.empty()) from.push_back(fmt::format("{}", info.frames - 1));
  const double frame_seconds = step.seconds_in(info.calendar);
  for (const std::string& text : from) {
    const std::int64_t frame = find_start(dataset, text);
    if (std::find(setting_.frames.begin(), setting_.frames.end(), frame) != setting_.frames.end()) {
      throw ConfigError("--from", text, "is given twice");
    }
    const std::int64_t known = goes_on ? dataset.frames_after(frame) / query_.lead : 0;
    // The last step needs none after it.
    if (takes_from_data(info) && options.steps - 1 > known) {
      throw ConfigError(
          "--steps", fmt::format("{}", options.steps),
          goes_on ? fmt::format("is more than {}: some input channels come from the data, which "
                                "end there",
                                known + 1)
                  : fmt::format("is more than 1: some input channels come from the data, which "
                                "have {} where the model has {}",
                                data::to_text(own), data::to_text(step)));
    }
    setting_.frames.push_back(frame);
    setting_.starts.push_back(info.has_times ? dataset.frame_time(frame)
                                             : std::numeric_limits<double>::quiet_NaN());
    if (info.has_times && frame_seconds <= 0) continue;
    for (std::int64_t lead = 1; lead <= options.steps; ++lead) {
      const double start = setting_.starts.back();
      setting_.valid_times.push_back(
          lead <= known && info.has_times
              ? dataset.frame_time(frame + lead * query_.lead)
              : data::time_after(start, lead * query_.lead, frame_seconds, info.calendar));
    }
  }
}

// Of the data that the model was trained on: as its manifest says, else as they are now, else that
// of the initial states.
void FieldForecast::settle_step(const data::FieldStep& own) {
  data::FieldStep& step = setting_.frame_step;
  step = step_in_manifest(trained_.data, "the manifest of " + trained_.config.run.directory);
  if (!step.known()) step = data::step_of(workload_.info());
  if (step.known()) return;
  step = own;
  if (!own.known() || query_.path == workload_.info().path) return;
  notes_.push_back(fmt::format(
      "nothing says how far apart the frames were that the model was trained on; leads and times "
      "are those of {}, which has {}",
      query_.path, data::to_text(own)));
}

std::int64_t FieldForecast::find_start(const data::FieldDataset& dataset,
                                       const std::string& text) const {
  const data::FieldDatasetInfo& info = dataset.info();
  std::int64_t found = -1;
  if (const auto number = whole_number(text)) {
    if (*number < 0 || *number >= info.frames) {
      throw ConfigError("--from", text,
                        fmt::format("is no frame: {} has {}, from 0 to {}; a date is YYYY-MM-DD",
                                    info.path, info.frames, info.frames - 1));
    }
    found = *number;
  } else {
    if (!info.has_times) {
      throw ConfigError(
          "--from", text,
          fmt::format("is no number of a frame, and the frames of {} have no dates", info.path));
    }
    const auto wanted = data::parse_time(text, info.calendar);
    if (!wanted) {
      throw ConfigError("--from", text,
                        fmt::format("is no date of the calendar {}: YYYY-MM-DD[ HH:MM], or the "
                                    "number of a frame",
                                    data::calendar_name(info.calendar)));
    }
    double nearest = std::numeric_limits<double>::infinity();
    double there = 0;
    for (std::int64_t frame = 0; frame < info.frames; ++frame) {
      const double apart = std::abs(dataset.frame_time(frame) - *wanted);
      if (apart >= nearest) continue;
      nearest = apart;
      there = dataset.frame_time(frame);
      found = frame;
    }
    if (nearest > 30) {
      throw ConfigError(
          "--from", text,
          fmt::format("is not in {}, whose frames go from {} to {}; the nearest is {}", info.path,
                      data::format_time(info.first_time, info.calendar),
                      data::format_time(info.last_time, info.calendar),
                      data::format_time(there, info.calendar)));
    }
  }
  const std::int64_t before = query_.history * query_.lead;
  if (frames_before(dataset, found) < before) {
    throw ConfigError(
        "--from", text,
        fmt::format("has no {} frames before it, which the model takes (data.history)", before));
  }
  return found;
}

// --- making it ---

// One forecast on its way.
class FieldForecast::Member {
 public:
  Member(const FieldForecast& forecast, data::FieldDataset& dataset, const MissingValues& missing,
         std::size_t start, std::size_t member)
      : forecast_(forecast),
        dataset_(dataset),
        missing_(missing),
        frame_(forecast.setting_.frames[start]),
        initial_(static_cast<std::size_t>(dataset.info().target_values(dataset.info().points[0]))),
        window_(dataset.info(), initial_states(member)) {
    dataset_.read_frame(frame_, {}, nullptr, initial_.data());
  }

  const std::vector<float>& input() const { return window_.values(); }

  // Takes what was predicted, or was kept, of step `lead` [channels, points…]; leaves NaN in it
  // where there is no value.
  void go_on(std::int64_t lead, std::span<float> prediction) {
    missing_.fill_forecast(initial_, prediction);
    std::vector<float> state(window_.frame_values());
    if (window_.prescribed() && lead < forecast_.setting_.leads) {
      const std::int64_t ahead = lead * forecast_.query_.lead;
      // What is the same at all times is that of the start.
      const bool known = dataset_.frames_after(frame_) >= ahead;
      dataset_.read_frame(known ? frame_ + ahead : frame_, {}, state.data(), nullptr);
      missing_.fill_inputs(state);
    }
    window_.push(prediction, std::move(state));
    for (std::size_t i = 0; i < prediction.size(); ++i) {
      if (std::isnan(initial_[i])) prediction[i] = initial_[i];
    }
  }

 private:
  std::vector<float> initial_states(std::size_t member) const {
    const data::FieldDatasetInfo& info = dataset_.info();
    std::vector<float> states(static_cast<std::size_t>(info.input_values(info.points[0])));
    const std::size_t values = states.size() / static_cast<std::size_t>(info.input_frames);
    for (std::int64_t back = 0; back < info.input_frames; ++back) {
      const auto place = static_cast<std::size_t>(info.input_frames - 1 - back);
      dataset_.read_frame(frame_ - back * forecast_.query_.lead, {}, states.data() + place * values,
                          nullptr);
    }
    missing_.fill_inputs(states);
    add_initial_noise({forecast_.setting_.noise, forecast_.setting_.seed}, info,
                      forecast_.workload_.statistics().inputs, frame_, member, states);
    return states;
  }

  const FieldForecast& forecast_;
  data::FieldDataset& dataset_;
  const MissingValues& missing_;
  std::int64_t frame_;
  std::vector<float> initial_;  // [target channels, points…]
  ForecastWindow window_;
};

std::size_t FieldForecast::start_of(std::int64_t number) const {
  return static_cast<std::size_t>(number / setting_.members);
}

std::size_t FieldForecast::member_of(std::int64_t number) const {
  return static_cast<std::size_t>(number % setting_.members);
}

// Steps that the file, which is rank 0's alone, holds of these, by rank.
std::vector<std::int64_t> FieldForecast::steps_there(dist::Session& session,
                                                     data::ForecastFile* file, std::int64_t first,
                                                     std::int64_t end) const {
  std::vector<std::int64_t> there(static_cast<std::size_t>(session.size()), setting_.leads);
  if (file != nullptr) {
    for (std::int64_t number = first; number < end; ++number) {
      there[static_cast<std::size_t>(number - first)] =
          file->finished(start_of(number), member_of(number));
    }
  }
  return session.all_reduce_min(there);
}

void FieldForecast::run(dist::Session& session, data::ForecastFile* file, bool show_progress) {
  const data::FieldDatasetInfo& info = setting_.fields;
  std::optional<data::FieldDataset> dataset;
  std::optional<FieldPredictor> predictor;
  session.agree([&] {
    dataset.emplace(data::FieldDataset::open(query_));
    predictor.emplace(trained_, workload_);
  });
  const MissingValues missing(
      workload_.statistics(), static_cast<std::int64_t>(info.input_channels.size()),
      static_cast<std::int64_t>(info.target_channels.size()), info.plane(info.points[0]));
  const std::int64_t all = setting_.members * static_cast<std::int64_t>(setting_.starts.size());
  std::vector<float> state(static_cast<std::size_t>(info.target_values(info.points[0])));
  Progress progress("forecast", all * setting_.leads, !show_progress || session.rank() != 0);
  progress.advance_to(0);
  for (std::int64_t first = 0; first < all; first += session.size()) {
    const std::int64_t mine = first + session.rank();
    const std::int64_t end = std::min<std::int64_t>(all, first + session.size());
    const std::vector<std::int64_t> there = steps_there(session, file, first, end);
    std::optional<Member> member;
    session.agree([&] {
      if (mine < end && there[static_cast<std::size_t>(session.rank())] < setting_.leads)
        member.emplace(*this, *dataset, missing, start_of(mine), member_of(mine));
    });
    // What was made before comes back to the rank that goes on with it: as many steps as it takes.
    for (std::int64_t number = first; number < end; ++number) {
      const std::int64_t kept = there[static_cast<std::size_t>(number - first)];
      found_ += kept;
      if (kept == setting_.leads) continue;
      for (std::int64_t lead = std::max<std::int64_t>(1, kept - query_.history); lead <= kept;
           ++lead) {
        std::string bytes;
        session.agree([&] {
          if (file == nullptr) return;
          file->read(start_of(number), member_of(number), lead, state);
          bytes = as_bytes(state);
        });
        bytes = session.broadcast(bytes);
        if (number != mine) continue;
        from_bytes(bytes, state);
        member->go_on(lead, state);
      }
    }
    const std::int64_t next = *std::min_element(there.begin(), there.end()) + 1;
    for (std::int64_t lead = next; lead <= setting_.leads; ++lead) {
      std::string bytes;
      session.agree([&] {
        if (!member || lead <= there[static_cast<std::size_t>(session.rank())]) return;
        predictor->predict(member->input(), state);
        member->go_on(lead, state);
        bytes = as_bytes(state);
      });
      const std::vector<std::string> gathered = data::gather_long(session, bytes);
      session.agree([&] {
        if (file == nullptr) return;
        for (std::int64_t number = first; number < end; ++number) {
          const std::string& made = gathered[static_cast<std::size_t>(number - first)];
          if (made.empty()) continue;
          from_bytes(made, state);
          file->write(start_of(number), member_of(number), state);
        }
        file->keep();
      });
      for (std::int64_t number = first; number < end; ++number) {
        if (lead > there[static_cast<std::size_t>(number - first)]) ++made_;
      }
      progress.advance_to(found_ + made_);
    }
  }
  peak_bytes_ = session.all_reduce_max(std::vector{predictor->peak_bytes()})[0];
  planned_peak_bytes_ = predictor->planned_peak_bytes();
}

}  // namespace garonne::train
