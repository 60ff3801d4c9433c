// Files of forecasts: what they say to readers of netCDF, and what is left of them after an end.
#include "data/fields/forecast_file.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <filesystem>
#include <limits>

#include "base/error.hpp"
#include "data/hdf5/hdf5.hpp"
#include "data/scratch.hpp"

namespace garonne::data {
namespace {

using Shape = std::vector<std::int64_t>;
using Names = std::vector<std::string>;

ForecastSetting small_setting(std::int64_t members) {
  ForecastSetting setting;
  setting.run = "runs/one";
  setting.step = 40;
  setting.frames = {7, 9};
  setting.starts = {86400.0 * 360, 86400.0 * 390};
  setting.leads = 3;
  setting.lead_seconds = 86400;
  setting.members = members;
  for (const double start : setting.starts) {
    for (int lead = 1; lead <= 3; ++lead) setting.valid_times.push_back(start + 86400.0 * lead);
  }
  setting.fields.path = "data/test";
  setting.fields.points = {2, 4};
  setting.fields.axes = {"latitude", "longitude"};
  setting.fields.coordinates = {{45, 30}, {}};
  setting.fields.target_channels = {"t2m", "wind/10", "time"};
  setting.fields.target_units = {"K", "m s-1", ""};
  setting.fields.target_standard_names = {"air_temperature", "", ""};
  setting.fields.target_long_names = {"2 metre temperature", "", ""};
  setting.fields.has_times = true;
  setting.fields.calendar = Calendar::Days360;
  return setting;
}

std::vector<float> state_of(std::size_t start, std::size_t member, std::int64_t lead) {
  std::vector<float> state(24);
  for (std::size_t i = 0; i < state.size(); ++i) {
    state[i] = static_cast<float>(1000 * start + 100 * member) + static_cast<float>(10 * lead) +
               0.1F * static_cast<float>(i);
  }
  return state;
}

// What is no latitude is not called so.
TEST(ForecastFile, RotatedCoordinatesKeepTheirNames) {
  const testing::Scratch scratch;
  const std::string path = scratch.path("x.nc");
  ForecastSetting setting = small_setting(1);
  setting.fields.axis_texts = {
      {"rlat", {{"standard_name", "grid_latitude"}, {"units", "degrees"}, {"axis", "Y"}}},
      {"rlon", {{"standard_name", "grid_longitude"}}}};
  setting.fields.grid_mapping = {"t2m",
                                 {{"grid_mapping_name", "rotated_latitude_longitude"}},
                                 {{"grid_north_pole_latitude", {39.25}}}};
  ForecastFile(path, setting).publish();
  const Hdf5File file = Hdf5File::open(path);
  EXPECT_EQ(file.dimension_scales("t2m"), (Names{"time", "lead", "rlat", "rlon"}));
  EXPECT_FALSE(file.has_dataset("latitude"));
  EXPECT_EQ(file.attributes("rlat").texts("standard_name"), (Names{"grid_latitude"}));
  EXPECT_EQ(file.attributes("rlat").texts("units"), (Names{"degrees"}));
  // A name that a channel has is not taken twice.
  EXPECT_EQ(file.attributes("t2m").texts("grid_mapping"), (Names{"t2m_2"}));
  EXPECT_EQ(file.attributes("t2m_2").texts("grid_mapping_name"),
            (Names{"rotated_latitude_longitude"}));
  EXPECT_EQ(file.attributes("t2m_2").numbers("grid_north_pole_latitude"),
            (std::vector<double>{39.25}));
}

TEST(ForecastFile, SaysWhatItHolds) {
  const testing::Scratch scratch;
  const std::string path = scratch.path("x.nc");
  {
    ForecastFile file(path, small_setting(2));
    for (std::size_t start = 0; start < 2; ++start) {
      for (std::size_t member = 0; member < 2; ++member) {
        for (std::int64_t lead = 1; lead <= 3; ++lead) {
          auto state = state_of(start, member, lead);
          if (lead == 2) state[5] = std::numeric_limits<float>::quiet_NaN();
          file.write(start, member, state);
        }
      }
    }
    EXPECT_FALSE(std::filesystem::exists(path));
    file.publish();
  }
  EXPECT_FALSE(std::filesystem::exists(path + ".part"));
  const Hdf5File file = Hdf5File::open(path);
  EXPECT_EQ(file.string_attribute("Conventions"), "CF-1.11");
  EXPECT_EQ(file.string_attribute("format"), "garonne.forecast");
  for (const char* name : {"t2m", "wind_10", "time_2"}) {
    EXPECT_EQ(file.dimension_scales(name),
              (Names{"realization", "time", "lead", "latitude", "longitude"}));
    EXPECT_EQ(file.dataset(name).shape(), (Shape{2, 2, 3, 2, 4}));
    EXPECT_EQ(file.dataset(name).chunk(), (Shape{1, 1, 1, 2, 4}));
    EXPECT_TRUE(file.dataset(name).compressed());
    EXPECT_TRUE(std::isnan(file.attributes(name).number("_FillValue")));
    EXPECT_EQ(file.attributes(name).text("coordinates"), "valid_time");
  }
  EXPECT_EQ(file.attributes("wind_10").text("units"), "m s-1");
  EXPECT_EQ(file.attributes("wind_10").text("long_name"), "wind/10");
  EXPECT_EQ(file.attributes("t2m").text("long_name"), "2 metre temperature");
  EXPECT_EQ(file.attributes("t2m").text("standard_name"), "air_temperature");
  EXPECT_FALSE(file.attributes("wind_10").has("standard_name"));
  EXPECT_FALSE(file.attributes("time_2").has("units"));
  EXPECT_EQ(file.attributes("time").text("calendar"), "360_day");
  EXPECT_EQ(file.attributes("time").text("standard_name"), "forecast_reference_time");
  EXPECT_EQ(file.dataset("valid_time").read_all<double>(), small_setting(2).valid_times);
  EXPECT_EQ(file.dataset("lead").read_all<std::int64_t>(), (Shape{24, 48, 72}));
  EXPECT_EQ(file.attributes("lead").text("units"), "hours");
  EXPECT_EQ(file.attributes("latitude").text("units"), "degrees_north");
  EXPECT_EQ(file.dataset("finished").read_all<std::int32_t>(), (std::vector<int>{3, 3, 3, 3}));
  std::vector<float> field(8);
  // Member 1, start 0, lead 2 of the second channel.
  file.dataset("wind_10").read_box<float>(Shape{1, 0, 1, 0, 0}, Shape{1, 1, 1, 2, 4}, field);
  const auto wanted = state_of(0, 1, 2);
  EXPECT_TRUE(std::equal(field.begin(), field.end(), wanted.begin() + 8));
  file.dataset("t2m").read_box<float>(Shape{1, 0, 1, 0, 0}, Shape{1, 1, 1, 2, 4}, field);
  EXPECT_TRUE(std::isnan(field[5]));
}

// Months from January are others than those from February: xarray's valid_time - time has to be the
// forecast_period.
TEST(ForecastFile, PeriodsAreThoseOfTheDates) {
  const testing::Scratch scratch;
  const auto at = [](int month) { return date_seconds(2001, month, 1, Calendar::Standard); };
  ForecastSetting setting = small_setting(1);
  setting.fields.calendar = Calendar::Standard;
  setting.lead_seconds = 31 * 86400.0;
  setting.frame_step = {setting.lead_seconds, true, setting.fields.calendar};
  setting.starts = {at(1)};
  setting.frames = {0};
  setting.valid_times = {at(2), at(3), at(4)};
  const auto make = [&](const std::string& path) {
    const ForecastFile file(path, setting);
    return path + ".part";
  };
  {
    const Hdf5File file = Hdf5File::open(make(scratch.path("one.nc")));
    EXPECT_EQ(file.dataset("lead").read_all<std::int64_t>(),
              (Shape{31 * 24, (31 + 28) * 24, (31 + 28 + 31) * 24}));
    EXPECT_EQ(file.attributes("lead").text("standard_name"), "forecast_period");
    EXPECT_FALSE(file.has_dataset("forecast_period"));
    EXPECT_EQ(file.attributes("t2m").text("coordinates"), "valid_time");
  }
  setting.starts.push_back(at(2));
  setting.frames.push_back(1);
  for (const int month : {3, 4, 5}) setting.valid_times.push_back(at(month));
  const Hdf5File file = Hdf5File::open(make(scratch.path("two.nc")));
  EXPECT_EQ(file.dataset("lead").read_all<std::int64_t>(), (Shape{1, 2, 3}));
  EXPECT_EQ(file.attributes("lead").text("long_name"), "steps of the model, of calendar months");
  EXPECT_EQ(file.dataset("forecast_period").read_all<std::int64_t>(),
            (Shape{31 * 24, 59 * 24, 90 * 24, 28 * 24, 59 * 24, 89 * 24}));
  EXPECT_EQ(file.dimension_scales("forecast_period"), (Names{"time", "lead"}));
  EXPECT_EQ(file.attributes("forecast_period").text("units"), "hours");
  EXPECT_EQ(file.attributes("t2m").text("coordinates"), "valid_time forecast_period");
}

// Killed while it writes: what it kept is there, and nothing that it did not.
TEST(ForecastFile, SurvivesItsWriter) {
  const testing::Scratch scratch;
  for (int kept = 0; kept < 4; ++kept) {
    const std::string path = scratch.path("killed" + std::to_string(kept) + ".nc");
    const pid_t writer = ::fork();
    ASSERT_GE(writer, 0);
    if (writer == 0) {
      ForecastFile file(path, small_setting(1));
      for (int lead = 1; lead <= kept; ++lead) {
        file.write(0, 0, state_of(0, 0, lead));
        file.keep();
      }
      file.write(1, 0, state_of(1, 0, 1));  // and this was not kept
      ::kill(::getpid(), SIGKILL);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(writer, &status, 0), writer);
    ASSERT_TRUE(WIFSIGNALED(status));
    EXPECT_FALSE(std::filesystem::exists(path));
    ForecastFile file(path, small_setting(1));
    EXPECT_EQ(file.finished(0, 0), kept);
    EXPECT_EQ(file.finished(1, 0), 0);
    std::vector<float> state(24);
    for (int lead = 1; lead <= kept; ++lead) {
      file.read(0, 0, lead, state);
      EXPECT_EQ(state, state_of(0, 0, lead));
    }
    for (std::int64_t lead = kept + 1; lead <= 3; ++lead) file.write(0, 0, state_of(0, 0, lead));
    for (std::int64_t lead = 1; lead <= 3; ++lead) file.write(1, 0, state_of(1, 0, lead));
    file.publish();
    std::vector<float> field(8);
    Hdf5File::open(path).dataset("t2m").read_box<float>(Shape{1, 2, 0, 0}, Shape{1, 1, 2, 4},
                                                        field);
    const auto wanted = state_of(1, 0, 3);
    EXPECT_TRUE(std::equal(field.begin(), field.end(), wanted.begin()));
  }
}

void expect_refusal(const std::string& path, const ForecastSetting& setting,
                    const std::string& words) {
  try {
    const ForecastFile file(path, setting);
    FAIL() << "was not refused: " << words;
  } catch (const IoError& error) {
    EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find(path + ".part"), std::string::npos) << error.what();
  }
}

TEST(ForecastFile, GoesOnWithItsOwnOnly) {
  const testing::Scratch scratch;
  const std::string path = scratch.path("x.nc");
  {
    const ForecastFile file(path, small_setting(1));
    expect_refusal(path, small_setting(1), "is being written by another process");
  }
  ForecastSetting other = small_setting(1);
  other.step = 41;
  expect_refusal(path, other, "its step is 40, that of this one 41");
  std::filesystem::resize_file(path + ".part", 100);
  expect_refusal(path, small_setting(1), "cannot open");
  EXPECT_THROW(ForecastFile(scratch.path("absent/x.nc"), small_setting(1)), ConfigError);
}

// What was forecast, or read, is not lost to another forecast.
TEST(ForecastFile, ReplacesItselfOnly) {
  const testing::Scratch scratch;
  const std::string path = scratch.path("x.nc");
  const auto make = [&](const ForecastSetting& setting) {
    ForecastFile file(path, setting);
    for (std::size_t start = 0; start < setting.starts.size(); ++start) {
      for (std::int64_t lead = 1; lead <= 3; ++lead) file.write(start, 0, state_of(start, 0, lead));
    }
    file.publish();
  };
  const auto refusal = [&](const ForecastSetting& setting) {
    try {
      make(setting);
    } catch (const ConfigError& error) {
      EXPECT_EQ(error.key() + error.value(), "--output" + path);
      return error.reason();
    }
    return std::string();
  };
  make(small_setting(1));
  EXPECT_EQ(refusal(small_setting(1)), "");
  ForecastSetting smaller = small_setting(1);
  smaller.frames.resize(1);
  smaller.starts.resize(1);
  EXPECT_NE(refusal(smaller).find("another forecast: its frames is [7,9], that of this one [7]"),
            std::string::npos);
  ForecastSetting of_itself = small_setting(1);
  of_itself.fields.files.emplace_back().path = path;
  EXPECT_NE(refusal(of_itself).find("is what this command reads"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(path + ".part"));
  Hdf5File::create(path).close();
  EXPECT_NE(refusal(small_setting(1)).find("is not a forecast of Garonne"), std::string::npos);
  EXPECT_NO_THROW(Hdf5File::open(path));
}

}  // namespace
}  // namespace garonne::data
