// Files of results come back as they were written, whole or not at all.
#include "data/statistics/skill_file.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <numeric>

#include "base/error.hpp"
#include "data/hdf5/hdf5.hpp"
#include "data/scratch.hpp"

namespace garonne::data {
namespace {

using Shape = std::vector<std::int64_t>;

SkillSetting small_setting() {
  SkillSetting setting;
  setting.run = "runs/one";
  setting.step = 40;
  setting.data = "data/test";
  setting.samples = 5;
  setting.leads = 3;
  setting.lead_seconds = 21600;
  setting.weighting = "cell-area";
  setting.sources = {"model", "persistence"};
  setting.channels = {"t2m", "z500"};
  setting.row_weights = {0.5, 1.5};
  setting.map_samples = {0, 7};
  setting.map_leads = {1, 3};
  setting.fields.points = {2, 4};
  setting.fields.axes = {"latitude", "longitude"};
  setting.fields.coordinates = {{45, 30}, {}};
  setting.fields.grid = "regional";
  setting.fields.target_units = {"K", ""};
  setting.fields.has_times = true;
  setting.fields.calendar = Calendar::Days360;
  return setting;
}

template <typename T>
std::vector<T> counted(std::size_t count, T first) {
  std::vector<T> values(count);
  std::iota(values.begin(), values.end(), first);
  return values;
}

TEST(SkillFile, ComesBack) {
  const testing::Scratch scratch;
  const std::string path = scratch.path("skill.h5");
  SkillResults results;
  results.rmse = counted<double>(12, 1);
  results.bias = counted<double>(12, 20);
  results.relative_l2 = counted<double>(12, 40);
  results.anomaly_correlation = counted<double>(12, 60);
  results.anomaly_correlation[3] = std::numeric_limits<double>::quiet_NaN();
  results.spectrum = "zonal";
  results.spectrum_leads = {1, 3};
  results.wavenumbers = 3;
  results.truth_spectrum = counted<double>(12, 100);
  results.model_spectrum = counted<double>(12, 200);
  const auto truth = counted<float>(16, 0);
  const auto forecast = counted<float>(16, 50);
  {
    SkillFile file(path, small_setting());
    file.write_map(1, 0, 3600, truth, forecast);
    EXPECT_FALSE(std::filesystem::exists(path));
    EXPECT_TRUE(testing::left_beside(path));
    file.finish("mean of 9 frames", results);
  }
  EXPECT_FALSE(testing::left_beside(path));

  const Hdf5File file = Hdf5File::open(path);
  EXPECT_EQ(file.string_attribute("format"), "garonne.skill");
  EXPECT_EQ(file.integer_attribute("format_version"), 2);
  EXPECT_EQ(file.string_attribute("weighting"), "cell-area");
  EXPECT_EQ(file.string_attribute("climatology"), "mean of 9 frames");
  EXPECT_EQ(file.integer_attribute("step"), 40);
  EXPECT_EQ(file.attributes("/").number("lead_seconds"), 21600);
  EXPECT_EQ(file.dataset("source").read_texts(), small_setting().sources);
  EXPECT_EQ(file.dataset("channel").read_texts(), small_setting().channels);
  EXPECT_EQ(file.dataset("lead").read_all<std::int64_t>(), (Shape{1, 2, 3}));
  EXPECT_EQ(file.dataset("rmse").shape(), (Shape{2, 3, 2}));
  EXPECT_EQ(file.dataset("rmse").read_all<double>(), results.rmse);
  EXPECT_EQ(file.dataset("bias").read_all<double>(), results.bias);
  EXPECT_EQ(file.dataset("relative_l2").read_all<double>(), results.relative_l2);
  EXPECT_TRUE(std::isnan(file.dataset("acc").read_all<double>()[3]));
  EXPECT_EQ(file.attributes("spectra").text("kind"), "zonal");
  EXPECT_EQ(file.dataset("spectra/truth").shape(), (Shape{2, 2, 3}));
  EXPECT_EQ(file.dataset("spectra/model").read_all<double>(), results.model_spectrum);
  EXPECT_EQ(file.dataset("latitude").read_all<double>(), (std::vector<double>{45, 30}));
  EXPECT_EQ(file.dataset("longitude").shape(), (Shape{4}));
  EXPECT_EQ(file.dimension_scales("rmse"), (std::vector<std::string>{"source", "lead", "channel"}));
  EXPECT_EQ(file.dimension_scales("row_weight"), (std::vector<std::string>{"latitude"}));
  EXPECT_EQ(file.dimension_scales("maps/truth"),
            (std::vector<std::string>{"maps/sample", "maps/lead", "maps/channel", "maps/latitude",
                                      "maps/longitude"}));
  EXPECT_EQ(file.dataset("channel_units").read_texts(), (std::vector<std::string>{"K", ""}));
  EXPECT_EQ(file.dataset("lead_time").read_all<std::int64_t>(), (Shape{6, 12, 18}));
  EXPECT_EQ(file.attributes("lead_time").text("units"), "hours");
  EXPECT_EQ(file.dataset("maps/sample").read_all<std::int64_t>(), (Shape{0, 7}));
  EXPECT_EQ(file.dataset("maps/truth").shape(), (Shape{2, 2, 2, 2, 4}));
  std::vector<float> kept(16);
  file.dataset("maps/forecast").read_box<float>(Shape{1, 0, 0, 0, 0}, Shape{1, 1, 2, 2, 4}, kept);
  EXPECT_EQ(kept, forecast);
  EXPECT_EQ(file.dataset("maps/time").read_all<double>()[2], 3600);
  EXPECT_EQ(file.attributes("maps/time").text("calendar"), "360_day");
  EXPECT_EQ(file.attributes("maps/time").text("units"), "seconds since 1970-01-01 00:00:00");
}

TEST(SkillFile, WhatIsNotFinishedIsNotThere) {
  const testing::Scratch scratch;
  const std::string path = scratch.path("skill.h5");
  { const SkillFile file(path, small_setting()); }
  EXPECT_TRUE(std::filesystem::is_empty(std::filesystem::path(path).parent_path()));
  EXPECT_THROW(SkillFile(scratch.path("absent/skill.h5"), small_setting()), ConfigError);
}

}  // namespace
}  // namespace garonne::data
