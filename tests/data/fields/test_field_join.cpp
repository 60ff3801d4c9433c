// netCDF files of one variable each, as climate models write them, and parts of their time.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/error.hpp"
#include "data/fields/field_files.hpp"
#include "data/fields/field_period.hpp"
#include "data/scratch.hpp"

namespace garonne::data {
namespace {

using testing::attach_scales;
using testing::expect_window;
using testing::filled;
using testing::line;
using testing::put;
using testing::put_line;
using testing::Scratch;
using testing::value_at;

// Variables number `first_channel` and on of value_at, of a month of 30 days a frame.
struct VariableFile {
  std::vector<std::string> variables = {"tas"};
  std::int64_t first_channel = 0;
  std::int64_t first_frame = 0;
  std::int64_t frames = 6;
  std::int64_t rows = 3;
  bool orography = false;

  void write(const std::string& path) const {
    const std::int64_t columns = 4;
    {
      Hdf5File file = Hdf5File::create(path);
      if (frames > 0) {
        put_line(file, "time", line(15 + 30 * static_cast<double>(first_frame), 30, frames));
        file.attributes("time").write("units", std::string("days since 1850-01-01"));
        file.attributes("time").write("calendar", std::string("360_day"));
      }
      put_line(file, "lat", line(15, 1.25, rows));
      file.attributes("lat").write("units", std::string("degrees_north"));
      put_line(file, "lon", line(225, 1.875, columns));
      file.attributes("lon").write("units", std::string("degrees_east"));
      for (std::size_t number = 0; number < variables.size(); ++number) {
        put<float>(file, variables[number], {frames, rows, columns},
                   filled({frames, rows, columns}, [&](const auto& at) {
                     return value_at(first_frame + at[0],
                                     first_channel + static_cast<std::int64_t>(number), at[1],
                                     at[2]);
                   }));
      }
      if (orography) {
        put<float>(file, "orog", {rows, columns}, filled({rows, columns}, [&](const auto& at) {
                     return value_at(200, 0, at[0], at[1]);
                   }));
      }
      file.close();
    }
    for (const std::string& variable : variables)
      attach_scales(path, variable, {"time", "lat", "lon"});
    if (orography) attach_scales(path, "orog", {"lat", "lon"});
  }
};

FieldQuery query_of_period(const std::string& path, const std::string& period = "") {
  FieldQuery query;
  query.path = path;
  query.period = FieldPeriod::parse("data.period", period);
  return query;
}

TEST(FieldJoin, AFileAVariable) {
  const Scratch scratch;
  VariableFile{{"tas"}, 0}.write(scratch.path("tas_1850.nc"));
  VariableFile{{"pr", "psl"}, 1}.write(scratch.path("water_1850.nc"));
  FieldQuery query = query_of_period(scratch.path(""));
  query.history = 1;
  query.rollout = 2;
  FieldDataset dataset = FieldDataset::open(query);
  const FieldDatasetInfo& info = dataset.info();
  EXPECT_EQ(info.channels, (std::vector<std::string>{"tas", "pr", "psl"}));
  EXPECT_EQ(info.runs, 1);
  EXPECT_EQ(info.frames, 6);
  EXPECT_EQ(info.left_out, 0);
  EXPECT_EQ(info.files.size(), 2U);
  ASSERT_EQ(info.samples, 3);
  for (std::int64_t sample = 0; sample < 3; ++sample) {
    expect_window(dataset, sample, sample, query, {0, 1, 2}, {0, 1, 2});
  }
  query.input_channels = {"psl", "tas"};
  query.target_channels = {"pr"};
  FieldDataset chosen = FieldDataset::open(query);
  expect_window(chosen, 1, 1, query, {2, 0}, {1}, {1, 2});
}

// Whatever the parts that the years of each variable are cut into: frames are those of all, read
// from where they are.
TEST(FieldJoin, PartsOfDifferentYears) {
  std::mt19937 engine(5);
  for (int round = 0; round < 8; ++round) {
    const Scratch scratch;
    std::vector<std::pair<std::int64_t, std::int64_t>> covered;
    for (const auto& [name, channel] : {std::pair{"tas", 0}, {"pr", 1}, {"psl", 2}}) {
      const std::int64_t first = engine() % 4;
      std::int64_t frame = first;
      for (int part = 0; part < 3; ++part) {
        const std::int64_t frames = 3 + engine() % 4;
        VariableFile{{name}, channel, frame, frames}.write(
            scratch.path(name + std::to_string(frame + 100) + ".nc"));
        frame += frames;
      }
      covered.emplace_back(first, frame);
    }
    std::int64_t begin = 0;
    std::int64_t end = 1000;
    std::int64_t least = 1000;
    std::int64_t most = 0;
    for (const auto& [first, after] : covered) {
      begin = std::max(begin, first);
      end = std::min(end, after);
      least = std::min(least, first);
      most = std::max(most, after);
    }
    FieldQuery query = query_of_period(scratch.path("*.nc"));
    query.history = 1;
    query.input_channels = query.target_channels = {"psl", "tas", "pr"};
    FieldDataset dataset = FieldDataset::open(query);
    EXPECT_EQ(dataset.info().runs, 1);
    EXPECT_EQ(dataset.info().frames, end - begin);
    EXPECT_EQ(dataset.info().left_out, most - least - (end - begin));
    ASSERT_EQ(dataset.info().samples, end - begin - 2);
    for (std::int64_t sample = 0; sample < dataset.info().samples; ++sample) {
      expect_window(dataset, sample, begin + sample, query, {2, 0, 1}, {2, 0, 1});
    }
  }
}

TEST(FieldJoin, WhatDoesNotChangeBelongsToAll) {
  const Scratch scratch;
  VariableFile{{"tas"}, 0}.write(scratch.path("tas.nc"));
  VariableFile fixed{{}, 0, 0, 0};
  fixed.orography = true;
  fixed.write(scratch.path("orog.nc"));
  FieldQuery query = query_of_period(scratch.path(""));
  query.input_channels = {"orog", "tas"};
  FieldDataset dataset = FieldDataset::open(query);
  EXPECT_EQ(dataset.info().samples, 5);
  EXPECT_EQ(dataset.info().target_channels, std::vector<std::string>{"tas"});
  std::vector<float> input(2 * 12);
  dataset.read(4, {}, input.data(), nullptr);
  EXPECT_EQ(input[6], value_at(200, 0, 1, 2));
  EXPECT_EQ(input[12 + 6], value_at(4, 0, 1, 2));
  // Alone it is nothing to learn from.
  testing::expect_io_error(scratch.path("orog.nc"), "no channel changes in time",
                           [&] { FieldDataset::open(query_of_period(scratch.path("orog.nc"))); });
}

TEST(FieldJoin, OpenFilesAreThoseOfAFrame) {
  const Scratch scratch;
  for (int variable = 0; variable < 5; ++variable) {
    for (int part = 0; part < 3; ++part) {
      VariableFile{{"v" + std::to_string(variable)}, variable, 6 * part}.write(
          scratch.path("v" + std::to_string(variable) + "_" + std::to_string(part) + ".nc"));
    }
  }
  const FieldQuery query = query_of_period(scratch.path(""));
  FieldDataset dataset = FieldDataset::open(query);
  EXPECT_EQ(dataset.info().frames, 18);
  for (std::int64_t sample = 0; sample < 17; ++sample) {
    expect_window(dataset, sample, sample, query, {0, 1, 2, 3, 4}, {0, 1, 2, 3, 4});
    EXPECT_LE(dataset.open_files(), 6);
  }
}

TEST(FieldJoin, WhatDoesNotGoTogetherIsRefused) {
  const auto refused = [](const VariableFile& one, const VariableFile& other,
                          const std::string& words) {
    const Scratch scratch;
    one.write(scratch.path("a.nc"));
    other.write(scratch.path("b.nc"));
    VariableFile{{"pr"}, 1}.write(scratch.path("c.nc"));
    testing::expect_io_error(scratch.path("b.nc"), words,
                             [&] { FieldDataset::open(query_of_period(scratch.path(""))); });
  };
  refused({{"tas"}}, {{"tas", "psl"}}, "tas in both");
  refused({{"tas"}}, {{"tas"}}, "members of an ensemble");
  refused({{"tas"}}, {{"psl"}, 2, 0, 6, 4}, "its points are");
  const Scratch scratch;
  VariableFile{{"tas"}}.write(scratch.path("a.nc"));
  VariableFile{{"pr"}, 1, 6}.write(scratch.path("b.nc"));
  testing::expect_io_error(scratch.path("b.nc"), "no frame in common",
                           [&] { FieldDataset::open(query_of_period(scratch.path(""))); });
}

// --- periods ---

TEST(FieldPeriods, DatesAreWholeYearsMonthsAndDays) {
  constexpr double day = 86400;
  const auto bounds = [](const std::string& text, Calendar calendar) {
    return FieldPeriod::parse("data.period", text).bounds(calendar);
  };
  EXPECT_EQ(bounds("1970/1970", Calendar::Gregorian), std::pair(0.0, 365 * day));
  EXPECT_EQ(bounds("1970/1970", Calendar::Days360), std::pair(0.0, 360 * day));
  EXPECT_EQ(bounds("1970-02/1970-02", Calendar::Gregorian), std::pair(31 * day, 59 * day));
  EXPECT_EQ(bounds("1970-12/1970-12", Calendar::Days365), std::pair(334 * day, 365 * day));
  EXPECT_EQ(bounds("1970-01-03/1970-01-04", Calendar::Gregorian), std::pair(2 * day, 4 * day));
  EXPECT_EQ(bounds("1971/", Calendar::Days360).first, 360 * day);
  EXPECT_TRUE(std::isinf(bounds("1971/", Calendar::Days360).second));
  EXPECT_TRUE(std::isinf(bounds("/1971", Calendar::Days360).first));
  EXPECT_TRUE(FieldPeriod::parse("data.period", "").everything());
  EXPECT_EQ(bounds("2000-02-30/2000-02-30", Calendar::Days360).second -
                bounds("2000-02-30/2000-02-30", Calendar::Days360).first,
            day);
  EXPECT_THROW(bounds("2000-02-30/", Calendar::Gregorian), ConfigError);
  for (const char* text : {"1970", "/", "1999/1970", "1970-13/", "1970-1-1x/", "200001/", "-5/",
                           "1970/1971/1972", "1970-00/"}) {
    EXPECT_THROW(FieldPeriod::parse("data.period", text), ConfigError) << text;
  }
}

TEST(FieldPeriods, OnlyFramesWithinAreThere) {
  const Scratch scratch;
  VariableFile{{"tas"}, 0, 0, 8}.write(scratch.path("tas_0.nc"));
  VariableFile{{"tas"}, 0, 8, 8}.write(scratch.path("tas_1.nc"));
  const FieldQuery query = query_of_period(scratch.path(""), "1850-04/1851-01");
  FieldDataset dataset = FieldDataset::open(query);
  const FieldDatasetInfo& info = dataset.info();
  EXPECT_EQ(info.frames, 10);  // of numbers 3 to 12, in both files
  EXPECT_EQ(info.runs, 1);
  EXPECT_EQ(format_time(info.first_time, info.calendar), "1850-04-16 00:00");
  EXPECT_EQ(format_time(info.last_time, info.calendar), "1851-01-16 00:00");
  ASSERT_EQ(info.samples, 9);
  for (std::int64_t sample = 0; sample < 9; ++sample) {
    expect_window(dataset, sample, 3 + sample, query, {0}, {0});
  }
  EXPECT_THROW(FieldDataset::open(query_of_period(scratch.path(""), "1900/")), ConfigError);
  testing::YearlyFile undated;
  undated.coordinates = false;
  undated.write(scratch.path("undated.h5"));
  EXPECT_THROW(FieldDataset::open(query_of_period(scratch.path("undated.h5"), "1850/")),
               ConfigError);
}

}  // namespace
}  // namespace garonne::data
