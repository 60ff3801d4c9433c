#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "data/fields/field_files.hpp"
#include "data/scratch.hpp"
#include "data/statistics/field_statistics.hpp"
#include "data/statistics/npy.hpp"
#include "dist/session.hpp"

namespace garonne::data {
namespace {

using testing::expect_io_error;
using testing::filled;
using testing::put;
using testing::query_of;
using testing::Scratch;
using testing::value_at;
using testing::YearlyFile;

// Two passes over everything in memory.
struct Plain {
  double mean = 0;
  double deviation = 0;
};
Plain plain(const std::vector<double>& values, const std::vector<double>& weights) {
  Plain result;
  double weight = 0;
  for (std::size_t index = 0; index < values.size(); ++index) {
    result.mean += weights[index] * values[index];
    weight += weights[index];
  }
  result.mean /= weight;
  for (std::size_t index = 0; index < values.size(); ++index) {
    result.deviation +=
        weights[index] * (values[index] - result.mean) * (values[index] - result.mean);
  }
  result.deviation = std::sqrt(result.deviation / weight);
  return result;
}

TEST(FieldStatistics, AreaWeights) {
  const std::vector<double> whole = area_weights({90, 45, 0, -45, -90});
  // Bands between 22.5 and 67.5 degrees: sines by hand.
  EXPECT_NEAR(whole[2], 5 * 2 * 0.38268343236508977 / 2, 1e-12);
  EXPECT_NEAR(whole[0], 5 * (1 - 0.9238795325112867) / 2, 1e-12);
  EXPECT_NEAR(whole[0] + whole[1] + whole[2] + whole[3] + whole[4], 5, 1e-12);
}

TEST(FieldStatistics, AreThoseOfAPlainLoop) {
  const Scratch scratch;
  YearlyFile year;
  year.write(scratch.path("1.h5"));
  year.first_frame = 6;
  year.frames = 3;
  year.write(scratch.path("2.h5"));
  year.first_frame = 12;  // after a gap
  year.write(scratch.path("3.h5"));
  FieldQuery query = query_of(scratch.path(""));
  query.lead = 2;
  dist::Session session = dist::Session::single();
  const FieldSummaries summaries = summarise_fields(query, true, session);
  const FieldSummary& found = summaries.inputs;
  ASSERT_EQ(found.channels, (std::vector<std::string>{"u10", "t2m", "z500"}));
  const std::vector<double> area = area_weights({90, 45, 0, -45, -90});
  const std::vector<std::int64_t> frames = {0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 13, 14};
  for (std::int64_t channel = 0; channel < 3; ++channel) {
    const auto at = static_cast<std::size_t>(channel);
    std::vector<double> values;
    std::vector<double> weights;
    std::vector<double> changes;
    std::vector<double> change_weights;
    for (std::int64_t row = 0; row < 5; ++row) {
      for (std::int64_t column = 0; column < 8; ++column) {
        std::vector<double> of_point;
        for (const std::int64_t frame : frames) {
          const auto value = static_cast<double>(value_at(frame, channel, row, column));
          values.push_back(value);
          weights.push_back(area[static_cast<std::size_t>(row)]);
          of_point.push_back(value);
          if (frame > 6 && frame != 12) continue;
          changes.push_back(static_cast<double>(value_at(frame + 2, channel, row, column)) - value);
          change_weights.push_back(area[static_cast<std::size_t>(row)]);
        }
        const Plain point = plain(of_point, std::vector<double>(frames.size(), 1));
        const auto place = static_cast<std::size_t>((channel * 5 + row) * 8 + column);
        EXPECT_NEAR(found.point_mean[place], point.mean, 1e-9);
        EXPECT_NEAR(found.point_deviation[place], point.deviation, 1e-9);
      }
    }
    const Plain all = plain(values, weights);
    EXPECT_NEAR(found.mean[at], all.mean, 1e-9);
    EXPECT_NEAR(found.deviation[at], all.deviation, 1e-9);
    EXPECT_EQ(found.least[at], *std::min_element(values.begin(), values.end()));
    EXPECT_EQ(found.greatest[at], *std::max_element(values.begin(), values.end()));
    EXPECT_EQ(found.missing[at], 0);
    const Plain change = plain(changes, change_weights);
    EXPECT_NEAR(found.difference_mean[at], change.mean, 1e-9);
    EXPECT_NEAR(found.difference_deviation[at], change.deviation, 1e-6);
  }
}

TEST(FieldStatistics, MissingValuesAreLeftOut) {
  const Scratch scratch;
  const std::string path = scratch.path("1979.h5");
  YearlyFile().write(path, [](std::vector<float>& values) {
    for (std::size_t index = 0; index < 7; ++index) {
      values[index] = std::numeric_limits<float>::quiet_NaN();
    }
  });
  dist::Session session = dist::Session::single();
  FieldQuery query = query_of(path);
  EXPECT_THROW(summarise_fields(query, false, session), Error);
  query.missing = "mask";
  const FieldSummaries summaries = summarise_fields(query, false, session);
  EXPECT_EQ(summaries.inputs.missing, (std::vector<double>{7, 0, 0}));
  EXPECT_EQ(summaries.inputs.least[0], static_cast<double>(value_at(0, 0, 0, 7)));
  EXPECT_TRUE(std::isfinite(summaries.inputs.deviation[0]));
}

TEST(FieldStatistics, ValuesThatStandForNoneAreTold) {
  const Scratch scratch;
  const std::string path = scratch.path("1979.h5");
  YearlyFile().write(path, [](std::vector<float>& values) {
    values[45] = 1e20F;  // of t2m
    values[85] = 1e18F;  // of z500, which may have them
  });
  dist::Session session = dist::Session::single();
  const auto warnings = statistics_warnings(summarise_fields(query_of(path), false, session));
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_NE(warnings[0].find("t2m has values of 1e+20"), std::string::npos) << warnings[0];
}

// Small numbers of float64 are 0 once they are read.
TEST(FieldStatistics, WhatFloat32DoesNotHaveIsTold) {
  const Scratch scratch;
  const auto notes = [&](double value) {
    Hdf5File file = Hdf5File::create(scratch.path("1979.h5"));
    put<double>(file, "fields", {3, 1, 5, 8}, std::vector<double>(120, value));
    file.close();
    dist::Session session = dist::Session::single();
    const auto query = query_of(scratch.path("1979.h5"));
    std::vector<std::string> found = summarise_fields(query, false, session).notes;
    const std::vector<std::string> before = FieldDataset::open(query).info().notes;
    found.erase(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(before.size()));
    return found;
  };
  ASSERT_EQ(notes(1e-50).size(), 1U);
  EXPECT_NE(notes(1e-50)[0].find("channel_0 is 0 everywhere as float32"), std::string::npos);
  EXPECT_TRUE(notes(1e-30).empty());
}

// Orography and the like are summarised where they are named.
TEST(FieldStatistics, ConstantsWantToBeNamed) {
  const Scratch scratch;
  const std::string path = scratch.path("model.nc");
  testing::NetcdfFile().write(path);
  FieldQuery query = query_of(path);
  query.missing = "mask";
  dist::Session session = dist::Session::single();
  const FieldSummaries summaries = summarise_fields(query, false, session);
  query.input_channels = {"t2m", "orography"};
  query.target_channels = {"t2m"};
  const FieldDatasetInfo info = FieldDataset::open(query).info();
  ASSERT_EQ(info.constant_inputs, (std::vector<std::string>{"orography"}));
  EXPECT_EQ(channels_of(info), (std::vector<std::string>{"t2m", "orography"}));
  expect_io_error("st.h5", "--channels t2m,orography",
                  [&] { choose_statistics(summaries, "channel", info, "st.h5"); });
  const FieldSummaries named = summarise_fields(query, false, session);
  EXPECT_EQ(choose_statistics(named, "channel", info, "st.h5").inputs.mean.size(), 2U);
}

// 273.15 is no float, and areas are no round numbers: sums alone leave a deviation of 1e-13.
TEST(FieldStatistics, AChannelOfOneNumberHasNoDeviation) {
  const Scratch scratch;
  const std::string path = scratch.path("1979.h5");
  YearlyFile().write(path, [](std::vector<float>& values) {
    for (std::size_t index = 0; index < values.size(); ++index) {
      if (index / 40 % 3 == 1) values[index] = 273.15F;
    }
  });
  dist::Session session = dist::Session::single();
  const FieldSummaries summaries = summarise_fields(query_of(path), true, session);
  const FieldSummary& found = summaries.inputs;
  EXPECT_EQ(found.mean[1], static_cast<double>(273.15F));
  EXPECT_EQ(found.deviation[1], 0);
  EXPECT_EQ(found.difference_deviation[1], 0);
  EXPECT_EQ(found.point_mean[47], static_cast<double>(273.15F));
  EXPECT_EQ(found.point_deviation[47], 0);
  EXPECT_GT(found.deviation[0], 0);
  const std::vector<std::string> warnings = statistics_warnings(summaries);
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_NE(warnings[0].find("t2m is 273.15 everywhere"), std::string::npos) << warnings[0];
  // Files of other programs, and of older ones, have what rounding left.
  FieldSummaries older = summaries;
  older.inputs.deviation[1] = 1.7e-13;
  const FieldDatasetInfo info = FieldDataset::open(query_of(path)).info();
  EXPECT_EQ(choose_statistics(older, "channel", info, path).inputs.deviation[1], 1);
}

TEST(FieldStatistics, AChannelWithoutValuesLeavesTheOthersTheirChanges) {
  const Scratch scratch;
  const std::string path = scratch.path("1979.h5");
  const FieldQuery plain_query = query_of(path);
  dist::Session session = dist::Session::single();
  YearlyFile().write(path);
  const FieldSummary whole = summarise_fields(plain_query, false, session).inputs;
  YearlyFile().write(path, [](std::vector<float>& values) {
    for (std::size_t index = 0; index < values.size(); ++index) {
      if (index / 40 % 3 == 1) values[index] = std::numeric_limits<float>::quiet_NaN();
    }
  });
  FieldQuery query = plain_query;
  query.missing = "mask";
  const FieldSummaries summaries = summarise_fields(query, false, session);
  const FieldSummary& found = summaries.inputs;
  EXPECT_EQ(found.missing[1], 6 * 40);
  EXPECT_EQ(found.mean[1], 0);
  EXPECT_TRUE(std::isnan(found.least[1]) && std::isnan(found.greatest[1]));
  ASSERT_EQ(found.difference_deviation.size(), 3U);
  for (const std::size_t channel : {0U, 2U}) {
    EXPECT_EQ(found.difference_mean[channel], whole.difference_mean[channel]);
    EXPECT_EQ(found.difference_deviation[channel], whole.difference_deviation[channel]);
  }
  const std::vector<std::string> warnings = statistics_warnings(summaries);
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_NE(warnings[0].find("t2m has no value anywhere: all 240"), std::string::npos)
      << warnings[0];
  EXPECT_NO_THROW(save_field_summaries(scratch.path("s.h5"), summaries));
}

TEST(FieldStatistics, KeptInAFileAndInAFolder) {
  const Scratch scratch;
  YearlyFile().write(scratch.path("1979.h5"));
  const FieldQuery query = query_of(scratch.path("1979.h5"));
  const FieldDataset dataset = FieldDataset::open(query);
  dist::Session session = dist::Session::single();
  const FieldSummaries made = summarise_fields(query, true, session);
  for (const std::string& path : {scratch.path("statistics.h5"), scratch.path("stats")}) {
    save_field_summaries(path, made);
    const FieldSummaries read = load_field_summaries(path, dataset.info());
    EXPECT_EQ(read.inputs.channels, made.inputs.channels);
    for (std::size_t channel = 0; channel < 3; ++channel) {
      EXPECT_FLOAT_EQ(static_cast<float>(read.inputs.mean[channel]),
                      static_cast<float>(made.inputs.mean[channel]));
      EXPECT_FLOAT_EQ(static_cast<float>(read.inputs.difference_deviation[channel]),
                      static_cast<float>(made.inputs.difference_deviation[channel]));
    }
  }
  EXPECT_EQ(load_field_summaries(scratch.path("statistics.h5"), dataset.info()).inputs.point_mean,
            made.inputs.point_mean);
  // Changes over another lead are not those of this one.
  EXPECT_TRUE(load_field_summaries(scratch.path("statistics.h5"), dataset.info(), 3)
                  .inputs.difference_deviation.empty());
}

TEST(FieldStatistics, ChosenByName) {
  const Scratch scratch;
  YearlyFile().write(scratch.path("1979.h5"));
  FieldQuery query = query_of(scratch.path("1979.h5"));
  query.input_channels = {"z500", "u10"};
  query.target_channels = {"t2m"};
  const FieldDataset dataset = FieldDataset::open(query);
  FieldSummaries summaries;
  summaries.inputs.channels = {"t2m", "u10", "z500"};
  summaries.inputs.mean = {1, 2, 3};
  summaries.inputs.deviation = {4, 0, 6};
  const FieldStatistics chosen =
      choose_statistics(summaries, "channel", dataset.info(), "somewhere");
  EXPECT_EQ(chosen.inputs.mean, (std::vector<float>{3, 2}));
  EXPECT_EQ(chosen.inputs.deviation, (std::vector<float>{6, 1}));
  EXPECT_EQ(chosen.targets.mean, std::vector<float>{1});
  summaries.inputs.channels = {"t2m", "v10", "z500"};
  const std::string message = expect_io_error("somewhere", "u10", [&] {
    choose_statistics(summaries, "channel", dataset.info(), "somewhere");
  });
  EXPECT_NE(message.find("t2m, v10, z500"), std::string::npos) << message;
  EXPECT_NE(message.find("z500, u10"), std::string::npos) << message;
  expect_io_error("somewhere", "each point",
                  [&] { choose_statistics(summaries, "pointwise", dataset.info(), "somewhere"); });
  EXPECT_THROW(choose_statistics(summaries, "median", dataset.info(), ""), ConfigError);
}

TEST(FieldStatistics, OfAPassOrBesideTheData) {
  const Scratch scratch;
  std::filesystem::create_directory(scratch.path("train"));
  YearlyFile().write(scratch.path("train/1979.h5"));
  FieldQuery query = query_of(scratch.path("train"));
  query.input_channels = {"u10"};
  query.target_channels = {"z500", "u10"};
  dist::Session session = dist::Session::single();
  const FieldDatasetInfo info = FieldDataset::open(query).info();
  EXPECT_EQ(info.statistics, "");
  const std::string own = scratch.path("own.h5");
  save_field_summaries(own, summarise_fields(query_of(scratch.path("train")), true, session));
  const FieldSummaries summaries = load_field_summaries(own, info);
  const FieldStatistics passed = choose_statistics(summaries, "channel", info, own);
  EXPECT_EQ(passed.targets.mean[1], passed.inputs.mean[0]);
  EXPECT_GT(passed.targets.mean[0], passed.inputs.mean[0]);
  const FieldStatistics points = choose_statistics(summaries, "pointwise", info, own);
  EXPECT_EQ(points.targets.mean.size(), 80U);
  EXPECT_EQ(points.inputs.mean[9], (value_at(0, 0, 1, 1) + value_at(5, 0, 1, 1)) / 2);
  EXPECT_TRUE(choose_statistics(summaries, "none", info, own).inputs.channels.empty());
  // Those of makani beside the folder, of all channels.
  std::filesystem::create_directory(scratch.path("stats"));
  const std::vector<float> means = {1, 2, 3};
  write_npy<float>(scratch.path("stats/global_means.npy"), {1, 3, 1, 1}, means);
  write_npy<float>(scratch.path("stats/global_stds.npy"), {1, 3, 1, 1}, means);
  const FieldDatasetInfo beside = FieldDataset::open(query).info();
  EXPECT_EQ(choose_statistics(load_field_summaries(beside.statistics, beside), "channel", beside,
                              beside.statistics)
                .targets.mean,
            (std::vector<float>{3, 1}));
}

TEST(FieldStatistics, CountsMustBeThoseOfTheData) {
  const Scratch scratch;
  YearlyFile().write(scratch.path("1979.h5"));
  const FieldDataset dataset = FieldDataset::open(query_of(scratch.path("1979.h5")));
  std::filesystem::create_directory(scratch.path("stats"));
  const std::vector<float> four = {1, 2, 3, 4};
  const std::string path = scratch.path("stats/global_means.npy");
  write_npy<float>(path, {1, 4, 1, 1}, four);
  const std::string message = expect_io_error(
      path, "4 channels", [&] { load_field_summaries(scratch.path("stats"), dataset.info()); });
  EXPECT_NE(message.find("3 (u10, t2m, z500)"), std::string::npos) << message;
}

TEST(FieldStatistics, OfTheWell) {
  const Scratch scratch;
  const std::string path =
      scratch.write("stats.yaml",
                    "mean:\n  height: 1.5\n  velocity:\n  - 2.0\n  - -3e-1\n"
                    "std:\n  height: 4\n  velocity: [5, 6]\n"
                    "std_delta:\n  height: 0.5\n  velocity:\n    - 0.25\n    - 1\n");
  FieldDatasetInfo info;
  info.channels = {"height", "velocity_x", "velocity_y"};
  const FieldSummary read = load_field_summaries(path, info).inputs;
  EXPECT_EQ(read.channels, info.channels);
  EXPECT_EQ(read.mean, (std::vector<double>{1.5, 2, -0.3}));
  EXPECT_EQ(read.deviation, (std::vector<double>{4, 5, 6}));
  EXPECT_EQ(read.difference_deviation, (std::vector<double>{0.5, 0.25, 1}));
  scratch.write("stats.yaml", "mean:\n  height: high\n");
  expect_io_error(path, "line 2", [&] { load_field_summaries(path, info); });
}

TEST(FieldStatistics, NormaliseAndRestoreASlab) {
  FieldMoments moments;
  moments.channels = {"a", "b"};
  moments.points = {3, 2};
  for (int value = 0; value < 12; ++value) {
    moments.mean.push_back(static_cast<float>(value));
    moments.deviation.push_back(static_cast<float>(1 << (value % 3)));
  }
  // Two frames of two channels of row 1 and 2.
  std::vector<float> values(16, 100);
  moments.normalise(1, 4, values);
  EXPECT_EQ(values[0], (100.0F - 2) / 4);
  EXPECT_EQ(values[4], (100.0F - 8) / 4);
  EXPECT_EQ(values[8 + 7], (100.0F - 11) / 4);
  moments.restore(1, 4, values);
  EXPECT_EQ(values, std::vector<float>(16, 100));
}

TEST(FieldStatistics, AreOfTheirOwnGridAndUnits) {
  const Scratch scratch;
  dist::Session session = dist::Session::single();
  YearlyFile().write(scratch.path("1.h5"));
  const FieldQuery query = query_of(scratch.path("1.h5"));
  const std::string path = scratch.path("statistics.h5");
  FieldSummaries made = summarise_fields(query, /*pointwise=*/true, session);
  EXPECT_EQ(made.axes, (std::vector<std::string>{"latitude", "longitude"}));
  made.inputs.units = {"m s-1", "K", ""};
  save_field_summaries(path, made);
  FieldDatasetInfo info = FieldDataset::open(query).info();
  const FieldSummaries loaded = load_field_summaries(path, info);
  EXPECT_EQ(loaded.axes, made.axes);
  EXPECT_EQ(loaded.coordinates, info.coordinates);
  EXPECT_EQ(loaded.inputs.units, made.inputs.units);
  for (const char* mode : {"channel", "pointwise"}) {
    EXPECT_NO_THROW(choose_statistics(loaded, mode, info, path));
    FieldDatasetInfo other = info;
    other.input_units = {"m/s", "degC", "m"};
    expect_io_error(path, "has t2m in K, and degC in",
                    [&] { choose_statistics(loaded, mode, other, path); });
  }
  std::reverse(info.coordinates[0].begin(), info.coordinates[0].end());
  EXPECT_NO_THROW(choose_statistics(loaded, "channel", info, path));
  expect_io_error(path, "latitude number 0 is 90, and -90 in",
                  [&] { choose_statistics(loaded, "pointwise", info, path); });
}

TEST(FieldStatistics, ReplaceStatisticsOnly) {
  const Scratch scratch;
  dist::Session session = dist::Session::single();
  const std::string data = scratch.path("1.h5");
  YearlyFile().write(data);
  const FieldSummaries made = summarise_fields(query_of(data), /*pointwise=*/false, session);
  const std::string kept = testing::read_bytes(data);
  EXPECT_THROW(save_field_summaries(data, made), ConfigError);
  EXPECT_THROW(expect_statistics_output(data, {data}), ConfigError);
  EXPECT_THROW(save_field_summaries(scratch.path("x.nc"), made), ConfigError);
  EXPECT_EQ(testing::read_bytes(data), kept);
  for (const char* name : {"own.h5", "own.hdf5", "folder"}) {
    save_field_summaries(scratch.path(name), made);
    EXPECT_NO_THROW(save_field_summaries(scratch.path(name), made));
    EXPECT_EQ(load_field_summaries(scratch.path(name), FieldDataset::open(query_of(data)).info())
                  .inputs.mean.size(),
              3U);
  }
  EXPECT_TRUE(std::filesystem::is_regular_file(scratch.path("own.hdf5")));
  std::filesystem::remove(scratch.path("folder/channels.json"));
  EXPECT_THROW(save_field_summaries(scratch.path("folder"), made), ConfigError);
}

}  // namespace
}  // namespace garonne::data
