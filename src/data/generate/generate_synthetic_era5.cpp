#include "data/generate/generate_synthetic_era5.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "base/progress.hpp"
#include "data/disk_space.hpp"
#include "data/fields/yearly_file.hpp"
#include "data/generate/shared_work.hpp"
#include "data/generate/synthetic_climate.hpp"
#include "data/statistics/frame_statistics.hpp"

namespace garonne::data {
namespace {

void check(const SyntheticEra5Generation& generation) {
  const auto refuse = [](const char* key, auto value, const char* reason) {
    throw ConfigError(key, fmt::format("{}", value), reason);
  };
  if (generation.years < 1) refuse("years", generation.years, "must be at least 1");
  if (generation.test_years < 0) refuse("test-years", generation.test_years, "is negative");
  if (generation.first_year < 1 || generation.first_year > 9000) {
    refuse("first-year", generation.first_year, "must be from 1 to 9000");
  }
  if (generation.frame_hours < 1 || 24 % generation.frame_hours != 0) {
    refuse("frame-hours", generation.frame_hours, "must divide 24");
  }
  const std::int64_t most = 365 * 24 / std::max<std::int64_t>(generation.frame_hours, 1);
  if (generation.frames_a_year < 0 || generation.frames_a_year > most) {
    refuse("frames-a-year", generation.frames_a_year, "must be from 0 (all) to those of 365 days");
  }
}

// Days from 1970 to the first of January.
std::int64_t days_before(std::int64_t year) {
  using namespace std::chrono;
  const auto date = std::chrono::year(static_cast<int>(year)) / January / 1;
  return sys_days(date).time_since_epoch().count();
}

// The first of the years that no file is of.
std::int64_t end_year(const SyntheticEra5Generation& generation) {
  return generation.first_year + generation.years + generation.test_years;
}

std::int64_t frames_of(const SyntheticEra5Generation& generation, std::int64_t year) {
  if (generation.frames_a_year != 0) return generation.frames_a_year;
  return (days_before(year + 1) - days_before(year)) * 24 / generation.frame_hours;
}

std::int64_t degrees_of(const SyntheticEra5Generation& generation) {
  if (generation.degrees > 0) return generation.degrees;
  return std::clamp<std::int64_t>(generation.latitudes / 3, 2, 240);
}

// The weather of the channels that one rank makes: r, r + ranks, r + 2 · ranks …
class RankWeather {
 public:
  RankWeather(const SyntheticEra5Generation& generation,
              const std::vector<ChannelClimate>& climates, SphereGrid grid, int rank, int ranks)
      : transform_(grid, degrees_of(generation), /*winds=*/false) {
    const double frame_days = static_cast<double>(generation.frame_hours) / 24;
    for (std::size_t channel = static_cast<std::size_t>(rank); channel < climates.size();
         channel += static_cast<std::size_t>(ranks)) {
      // A channel's weather belongs to its name, whatever others are asked for.
      channels_.emplace_back(climates[channel], 0,
                             philox_key(generation.seed, "data era5 " + climates[channel].name),
                             transform_.degrees(), frame_days);
    }
  }

  std::int64_t points() const { return transform_.points(); }

  // The next frame, as the bytes of [channel, latitude, longitude] float32; `day` counted from a
  // 1 January.
  std::string next_frame(double day) {
    std::string bytes;
    for (ChannelWeather& channel : channels_) {
      channel.advance();
      channel.write(transform_, day, field_);
      const std::vector<float> values(field_.begin(), field_.end());
      bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
    }
    return bytes;
  }

 private:
  SphereTransform transform_;
  std::vector<ChannelWeather> channels_;
  std::vector<double> field_;
};

// A whole frame, [channel, point], of what each rank made of it.
std::vector<float> whole_frame(const std::vector<std::string>& of_ranks, std::size_t channels,
                               std::size_t points) {
  std::vector<float> values(points * channels);
  const std::size_t ranks = of_ranks.size();
  const std::size_t bytes = points * sizeof(float);
  for (std::size_t channel = 0; channel < channels; ++channel) {
    std::memcpy(values.data() + channel * points,
                of_ranks[channel % ranks].data() + channel / ranks * bytes, bytes);
  }
  return values;
}

YearlyFields describe(const SyntheticEra5Generation& generation,
                      const std::vector<std::string>& channels, const SphereGrid& grid) {
  YearlyFields description;
  description.name = "synthetic ERA5";
  description.channels = channels;
  description.grid = grid;
  description.frame_seconds = 3600.0 * static_cast<double>(generation.frame_hours);
  description.texts = {{"generator", "garonne data synthetic-era5"}};
  description.integers = {{"seed", static_cast<std::int64_t>(generation.seed)},
                          {"degrees", degrees_of(generation)}};
  return description;
}

// The files of all years, one open at a time.
class YearWriter {
 public:
  YearWriter(const SyntheticEra5Generation& generation, YearlyFields description)
      : generation_(generation),
        description_(std::move(description)),
        statistics_(description_.grid, static_cast<std::int64_t>(description_.channels.size())) {}

  void begin(std::int64_t year, std::int64_t frames) {
    trains_ = year < generation_.first_year + generation_.years;
    file_.emplace(
        description_,
        fmt::format("{}/{}/{:04}.h5", generation_.output, trains_ ? "train" : "test", year), frames,
        86400.0 * static_cast<double>(days_before(year)));
  }

  void write(std::int64_t frame, const std::vector<float>& values) {
    file_->write_frame(frame, values);
    // Whole years follow each other; cut ones do not.
    const bool follows = frame > 0 || (any_ && generation_.frames_a_year == 0);
    if (trains_) statistics_.add(values, follows);
    any_ = true;
  }

  void end() {
    file_->publish();
    file_.reset();
  }

  const FrameStatistics& finish() {
    statistics_.write(generation_.output + "/stats");
    write_yearly_metadata(description_, generation_.output);
    return statistics_;
  }

 private:
  const SyntheticEra5Generation& generation_;
  YearlyFields description_;
  FrameStatistics statistics_;
  std::optional<YearlyFile> file_;
  bool trains_ = true;
  bool any_ = false;
};

}  // namespace

SyntheticEra5Summary generate_synthetic_era5(dist::Session& session,
                                             const SyntheticEra5Generation& generation) {
  std::optional<RankWeather> weather;
  std::optional<YearWriter> writer;  // of rank 0
  SyntheticEra5Summary summary;
  const std::int64_t end = end_year(generation);

  session.agree([&] {
    check(generation);
    const std::vector<ChannelClimate> climates = choose_channels(generation.channels);
    const SphereGrid grid =
        make_sphere_grid(generation.grid, generation.latitudes, generation.longitudes);
    weather.emplace(generation, climates, grid, session.rank(), session.size());
    for (const ChannelClimate& climate : climates) summary.channels.push_back(climate.name);
    for (std::int64_t year = generation.first_year; year < end; ++year)
      summary.frames += frames_of(generation, year);
    if (session.rank() != 0) return;
    YearlyFields description = describe(generation, summary.channels, grid);
    make_yearly_folder(generation.output, generation.test_years > 0);
    summary.bytes = yearly_file_bytes(description, summary.frames);
    check_space(generation.output + "/data.json", summary.bytes);
    writer.emplace(generation, std::move(description));
  });

  Progress progress("synthetic-era5", summary.frames,
                    !generation.show_progress || session.rank() != 0);
  std::int64_t done = 0;
  const std::size_t channels = summary.channels.size();
  const auto points = static_cast<std::size_t>(weather->points());
  const double frame_days = static_cast<double>(generation.frame_hours) / 24;
  for (std::int64_t year = generation.first_year; year < end; ++year) {
    const std::int64_t frames = frames_of(generation, year);
    if (writer) writer->begin(year, frames);
    for (std::int64_t frame = 0; frame < frames; ++frame) {
      const std::string mine = weather->next_frame(static_cast<double>(frame) * frame_days);
      const std::vector<std::string> all = gather_long(session, mine);
      if (writer) writer->write(frame, whole_frame(all, channels, points));
      progress.advance_to(++done, fmt::format("{:04}", year));
    }
    session.agree([&] {
      if (writer) writer->end();
    });
  }
  session.agree([&] {
    if (!writer) return;
    const FrameStatistics& statistics = writer->finish();
    for (std::size_t channel = 0; channel < channels; ++channel) {
      summary.means.push_back(statistics.mean(static_cast<std::int64_t>(channel)));
      summary.deviations.push_back(statistics.deviation(static_cast<std::int64_t>(channel)));
    }
  });
  return summary;
}

}  // namespace garonne::data
