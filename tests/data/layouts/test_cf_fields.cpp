// What netCDF files say of their variables and dimensions, in the ways that programs write it.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "base/error.hpp"
#include "data/fields/channel_units.hpp"
#include "data/fields/field_files.hpp"
#include "data/fields/field_inspect.hpp"
#include "data/scratch.hpp"

namespace garonne::data {
namespace {

using testing::attach_scales;
using testing::expect_io_error;
using testing::filled;
using testing::line;
using testing::put;
using testing::put_line;
using testing::query_of;
using testing::Scratch;
using testing::value_at;

using Texts = std::map<std::string, std::string>;

// Frames of "t" on a globe of 5 rows and 8 columns, whose attributes are a test's.
struct GlobeFile {
  std::string row = "lat";
  std::string column = "lon";
  Texts row_attributes;
  Texts column_attributes;
  Texts attributes;
  std::vector<double> rows = line(90, -45, 5);
  std::vector<double> times = line(0, 1, 4);
  std::string time_units = "days since 2000-01-01";

  void write(const std::string& path, const std::function<void(Hdf5File&)>& more = {},
             const std::vector<std::string>& dimensions = {}) const {
    {
      Hdf5File file = Hdf5File::create(path);
      const auto frames = static_cast<std::int64_t>(times.size());
      put_line(file, "time", times);
      file.attributes("time").write("units", time_units);
      put_line(file, row, rows);
      put_line(file, column, line(0, 45, 8));
      put<float>(file, "t", {frames, 5, 8}, filled({frames, 5, 8}, [](const auto& at) {
                   return value_at(at[0], 0, at[1], at[2]);
                 }));
      const std::pair<std::string, const Texts*> all[] = {
          {row, &row_attributes}, {column, &column_attributes}, {"t", &attributes}};
      for (const auto& [name, texts] : all) {
        for (const auto& [attribute, text] : *texts)
          file.attributes(name).write(attribute.c_str(), text);
      }
      if (more) more(file);
      file.close();
    }
    attach_scales(path, "t",
                  dimensions.empty() ? std::vector<std::string>{"time", row, column} : dimensions);
  }
};

FieldDatasetInfo info_of(const std::string& path) {
  return FieldDataset::open(query_of(path)).info();
}

TEST(CfFields, LatitudesAreToldByUnitsOrNames) {
  struct Case {
    const char* row;
    const char* column;
    Texts row_attributes;
    Texts column_attributes;
  };
  const Scratch scratch;
  const std::string path = scratch.path("globe.nc");
  for (const Case& one : {
           Case{"lat", "lon", {}, {}},
           Case{"latitude", "longitude", {}, {}},
           Case{"Latitude", "LON", {}, {}},
           Case{"y", "x", {{"standard_name", "latitude"}}, {{"standard_name", "longitude"}}},
           Case{"y", "x", {{"axis", "Y"}}, {{"axis", "X"}}},
           Case{"lat", "lon", {{"units", "degrees"}}, {{"units", "degrees"}}},
           Case{"y", "x", {{"units", "degrees_north"}}, {{"units", "degrees_east"}}},
       }) {
    SCOPED_TRACE(std::string(one.row) + " " + one.column);
    GlobeFile{one.row, one.column, one.row_attributes, one.column_attributes, {}}.write(path);
    const FieldDatasetInfo info = info_of(path);
    EXPECT_EQ(info.grid, "equiangular");
    EXPECT_EQ(info.grid_reason, "");
    EXPECT_EQ(info.axes, (std::vector<std::string>{"latitude", "longitude"}));
  }
}

TEST(CfFields, NamesOfLatitudesDoNotMakeNumbersDegrees) {
  const Scratch scratch;
  const std::string path = scratch.path("plane.nc");
  // Metres; beyond a pole; what a dimension without coordinates has; a part of a plane.
  for (GlobeFile file : {
           GlobeFile{"lat", "lon", {{"units", "m"}}, {{"units", "m"}}, {}},
           GlobeFile{"lat", "lon", {}, {}, {}, line(0, 45, 5)},
           GlobeFile{"lat", "lon", {}, {}, {}, line(0, 0, 5)},
           GlobeFile{"y", "x", {{"axis", "Y"}}, {{"axis", "X"}}, {}, line(0, 1, 5)},
       }) {
    file.write(path);
    const FieldDatasetInfo info = info_of(path);
    EXPECT_EQ(info.grid, "regional");
    EXPECT_NE(info.grid_reason.find("degrees_north"), std::string::npos) << info.grid_reason;
    EXPECT_EQ(info.axes[0], file.row);
  }
}

TEST(CfFields, WhatIsNoChannelIsNamedWithAReason) {
  const Scratch scratch;
  const std::string path = scratch.path("more.nc");
  GlobeFile().write(path, [](Hdf5File& file) {
    put_line(file, "lat2", line(80, -40, 5));
    file.attributes("lat2").write("units", std::string("degrees_north"));
    put_line(file, "time2", line(0, 7, 2));
    file.attributes("time2").write("units", std::string("days since 2000-01-01"));
    put_line(file, "lev", {1, 2});
    put_line(file, "layer", {1, 2});
    put_line(file, "bnds", {0, 1});
    put<float>(file, "u", {4, 5, 8}, filled({4, 5, 8}, [](const auto&) { return 1.0F; }));
    put<float>(file, "other_grid", {4, 5, 8}, filled({4, 5, 8}, [](const auto&) { return 1.0F; }));
    put<float>(file, "other_times", {2, 5, 8}, filled({2, 5, 8}, [](const auto&) { return 1.0F; }));
    put<float>(file, "soil", {2, 2, 5, 8}, filled({2, 2, 5, 8}, [](const auto&) { return 1.0F; }));
    put<float>(file, "lat_bnds", {5, 2}, filled({5, 2}, [](const auto&) { return 1.0F; }));
  });
  attach_scales(path, "u", {"time", "lat", "lon"});
  attach_scales(path, "other_grid", {"time", "lat2", "lon"});
  attach_scales(path, "other_times", {"time2", "lat", "lon"});
  attach_scales(path, "soil", {"lev", "layer", "lat", "lon"});
  attach_scales(path, "lat_bnds", {"lat", "bnds"});
  const FieldDatasetInfo info = info_of(path);
  EXPECT_EQ(info.channels, (std::vector<std::string>{"t", "u"}));
  std::map<std::string, std::string> reasons;
  for (const LeftOutVariable& one : info.left_out_variables) reasons[one.name] = one.reason;
  ASSERT_EQ(reasons.size(), 3U);
  EXPECT_EQ(reasons["other_grid"], "is on the grid (lat2, lon), and most are on (lat, lon)");
  EXPECT_EQ(reasons["other_times"], "has its own times, \"time2\", and most have \"time\"");
  EXPECT_NE(reasons["soil"].find("(lev, layer, lat, lon) are of one kind"), std::string::npos);
  EXPECT_NE(describe(info).find("left out    other_times has its own times"), std::string::npos);
}

TEST(CfFields, NamesGoWithChannels) {
  const Scratch scratch;
  const std::string path = scratch.path("names.nc");
  GlobeFile globe;
  globe.attributes = {
      {"units", "K"}, {"long_name", "2 metre temperature"}, {"standard_name", "air_temperature"}};
  globe.write(path, [](Hdf5File& file) {
    put_line(file, "level", {850, 500});
    file.attributes("level").write("units", std::string("hPa"));
    put<float>(file, "u", {4, 2, 5, 8}, filled({4, 2, 5, 8}, [](const auto&) { return 1.0F; }));
    file.attributes("u").write("long_name", std::string("eastward wind"));
    file.attributes("u").write("standard_name", std::string("unknown"));
  });
  attach_scales(path, "u", {"time", "level", "lat", "lon"});
  const FieldDatasetInfo info = info_of(path);
  EXPECT_EQ(info.target_channels, (std::vector<std::string>{"t", "u_850", "u_500"}));
  EXPECT_EQ(info.target_units, (std::vector<std::string>{"K", "", ""}));
  EXPECT_EQ(info.target_standard_names, (std::vector<std::string>{"air_temperature", "", ""}));
  EXPECT_EQ(info.target_long_names,
            (std::vector<std::string>{"2 metre temperature", "eastward wind at level 850 hPa",
                                      "eastward wind at level 500 hPa"}));
}

// December 1950, March 1951, …: 90, 92, 92 and 91 days.
TEST(CfFields, SeasonsAreOneRun) {
  const Scratch scratch;
  const std::string path = scratch.path("seasons.nc");
  GlobeFile globe;
  globe.times = {335, 425, 517, 609, 700, 790, 882};
  globe.time_units = "days since 1950-01-01";
  globe.write(path);
  const FieldDatasetInfo info = info_of(path);
  EXPECT_EQ(info.runs, 1);
  EXPECT_EQ(info.samples, 6);
  EXPECT_NE(describe(info).find("steps of 3 months\n"), std::string::npos) << describe(info);
}

TEST(CfFields, FilesInOtherUnitsAreRefused) {
  const Scratch scratch;
  GlobeFile one;
  one.attributes["units"] = "K";
  one.write(scratch.path("a.nc"));
  GlobeFile other;
  other.times = line(4, 1, 4);
  const auto open = [&](const char* units) {
    other.attributes.clear();
    if (units != nullptr) other.attributes["units"] = units;
    other.write(scratch.path("b.nc"));
    return info_of(scratch.path(""));
  };
  EXPECT_EQ(open("kelvin").runs, 1);
  EXPECT_EQ(open(nullptr).runs, 1);
  const std::string message = expect_io_error(
      scratch.path("b.nc"), "channel \"t\" is in \"degC\", but in \"K\"", [&] { open("degC"); });
  EXPECT_NE(message.find(scratch.path("a.nc")), std::string::npos) << message;
}

TEST(CfFields, UnitsHaveManySpellings) {
  const auto same = [](const char* one, const char* other) { return same_units(one, other); };
  EXPECT_TRUE(same("m s-1", "m s**-1"));
  EXPECT_TRUE(same("m s-1", "m/s"));
  EXPECT_TRUE(same("kg m-2 s-1", "kg/m^2/s"));
  EXPECT_TRUE(same("m2 s-2", "m**2 s**-2"));
  EXPECT_TRUE(same("W m-2", "W m^-2"));
  EXPECT_TRUE(same("K", "Kelvin"));
  EXPECT_TRUE(same("degC", "°C"));
  EXPECT_TRUE(same("1", "dimensionless"));
  EXPECT_TRUE(same("mm", "mm"));
  for (const auto& [one, other] : {std::pair("K", "degC"),
                                   {"Pa", "hPa"},
                                   {"m", "mm"},
                                   {"m", "m2"},
                                   {"m s-1", "m s"},
                                   {"kg kg-1", "g kg-1"},
                                   {"mm/day", "mm/s"},
                                   {"m", "M"},
                                   {"%", "1"}}) {
    EXPECT_FALSE(same(one, other)) << one << " " << other;
  }
  // What is no unit at all ends too.
  for (const char* text :
       {"", " ", "/", "**", "s-", "s+-1", "9999999999999999999", "m999999999999999999999"}) {
    EXPECT_TRUE(same(text, text));
    same(text, "K");
    same("m", text);
  }
}

TEST(CfFields, TimesThatDoNotAscendAreRefusedWithDates) {
  const Scratch scratch;
  const std::string path = scratch.path("times.nc");
  GlobeFile globe;
  globe.times = {3, 2, 1, 0};
  globe.write(path);
  expect_io_error(path, "frame 1 is at 2000-01-03 00:00 after 2000-01-04 00:00",
                  [&] { info_of(path); });
  globe.times = {0, 0, 0, 0};
  globe.write(path);
  expect_io_error(path, "all 4 times are 0", [&] { info_of(path); });
}

TEST(CfFields, FilesThatOverlapInTimeAreNoted) {
  const Scratch scratch;
  GlobeFile globe;
  globe.times = line(0, 1, 4);
  globe.write(scratch.path("a.nc"));
  globe.times = line(2, 1, 4);
  globe.write(scratch.path("b.nc"));
  const FieldDatasetInfo info = info_of(scratch.path(""));
  EXPECT_EQ(info.runs, 2);
  ASSERT_EQ(info.notes.size(), 1U);
  EXPECT_NE(info.notes[0].find(scratch.path("b.nc") + " begins at 2000-01-03 00:00, before " +
                               scratch.path("a.nc") + " ends at 2000-01-04 00:00: 2 frames"),
            std::string::npos)
      << info.notes[0];
  EXPECT_NE(describe(info).find("  note        " + info.notes[0]), std::string::npos);
  // Members of an ensemble have the same times, and parts of a run none in common.
  globe.times = line(0, 1, 4);
  globe.write(scratch.path("b.nc"));
  EXPECT_TRUE(info_of(scratch.path("")).notes.empty());
  globe.times = line(4, 1, 4);
  globe.write(scratch.path("b.nc"));
  EXPECT_TRUE(info_of(scratch.path("")).notes.empty());
}

TEST(CfFields, SwappedAxesAreRefusedWithWhatToDo) {
  const Scratch scratch;
  const std::string path = scratch.path("swapped.nc");
  GlobeFile().write(path, [](Hdf5File& file) {
    put<float>(file, "u", {4, 8, 5}, filled({4, 8, 5}, [](const auto&) { return 1.0F; }));
  });
  attach_scales(path, "u", {"time", "lon", "lat"});
  expect_io_error(path, "`ncpdq -a time,lat,lon`", [&] { FieldDataset::open(query_of(path)); });
}

// Values and what is missing as xarray and netCDF4 for Python have them.
template <typename Stored>
std::vector<float> read_packed(const std::string& path, const std::string& said, double fill,
                               const std::vector<Stored>& first) {
  GlobeFile().write(path, [&](Hdf5File& file) {
    std::vector<Stored> stored(160, 7);
    std::copy(first.begin(), first.end(), stored.begin());
    put<Stored>(file, "packed", {4, 5, 8}, stored);
    Hdf5Attributes attributes = file.attributes("packed");
    attributes.write("_Unsigned", said);
    attributes.write("_FillValue", std::vector<double>{fill});
    attributes.write("scale_factor", std::vector<double>{0.25});
    attributes.write("add_offset", std::vector<double>{260});
  });
  attach_scales(path, "packed", {"time", "lat", "lon"});
  FieldQuery query = query_of(path);
  query.input_channels = query.target_channels = {"packed"};
  query.missing = "mask";
  std::vector<float> values(40);
  FieldDataset::open(query).read_frame(0, {}, values.data(), nullptr);
  return values;
}

TEST(CfFields, RotatedCoordinatesAreToldAsTheyAre) {
  const Scratch scratch;
  GlobeFile file{"rlat",
                 "rlon",
                 {{"units", "degrees"}, {"standard_name", "grid_latitude"}, {"axis", "Y"}},
                 {{"units", "degrees"}, {"standard_name", "grid_longitude"}, {"axis", "X"}},
                 {{"grid_mapping", "rotated_pole"}}};
  file.write(scratch.path("rotated.nc"), [](Hdf5File& out) {
    out.create_array<std::int32_t>("rotated_pole", std::vector<std::int64_t>());
    Hdf5Attributes attributes = out.attributes("rotated_pole");
    attributes.write("grid_mapping_name", std::string("rotated_latitude_longitude"));
    attributes.write("grid_north_pole_latitude", std::vector<double>{39.25});
  });
  const FieldDatasetInfo info = info_of(scratch.path("rotated.nc"));
  // Areas go by them as by the Earth's.
  EXPECT_EQ(info.axes[0], "latitude");
  ASSERT_EQ(info.axis_texts.size(), 2U);
  EXPECT_EQ(info.axis_texts[1].name, "rlon");
  EXPECT_EQ(info.axis_texts[1].attributes[0],
            std::pair(std::string("standard_name"), std::string("grid_longitude")));
  EXPECT_EQ(info.grid_mapping.name, "rotated_pole");
  ASSERT_EQ(info.grid_mapping.numbers.size(), 1U);
  EXPECT_EQ(info.grid_mapping.numbers[0].second, (std::vector<double>{39.25}));
  GlobeFile().write(scratch.path("globe.nc"));
  EXPECT_TRUE(info_of(scratch.path("globe.nc")).axis_texts.empty());
}

TEST(CfFields, DatesWrittenAsNumbersAreRefused) {
  const Scratch scratch;
  GlobeFile file;
  file.times = line(20000101, 1, 4);
  file.time_units = "day as %Y%m%d.%f";
  file.write(scratch.path("cdo.nc"));
  expect_io_error(scratch.path("cdo.nc"), "`cdo -r copy`",
                  [&] { info_of(scratch.path("cdo.nc")); });
}

// Versions of ERA5 are no levels; with one of them alone nothing is wrong.
TEST(CfFields, VersionsOfERA5AreNoLevels) {
  const Scratch scratch;
  const auto write = [&](const std::string& path, std::int64_t versions) {
    GlobeFile().write(path, [&](Hdf5File& file) {
      put_line(file, "expver", line(1, 4, versions));
      put<float>(file, "t2m", {4, versions, 5, 8},
                 std::vector<float>(static_cast<std::size_t>(4 * versions * 40)));
    });
    attach_scales(path, "t2m", {"time", "expver", "lat", "lon"});
  };
  write(scratch.path("both.nc"), 2);
  expect_io_error(scratch.path("both.nc"), "combine_first",
                  [&] { info_of(scratch.path("both.nc")); });
  write(scratch.path("one.nc"), 1);
  EXPECT_EQ(info_of(scratch.path("one.nc")).channels, (std::vector<std::string>{"t", "t2m"}));
}

TEST(CfFields, IntegersOfTheOtherSign) {
  const Scratch scratch;
  const std::string path = scratch.path("packed.nc");
  const auto as_unsigned = read_packed<std::int32_t>(path, "true", -1, {-1, -2, 100});
  EXPECT_TRUE(std::isnan(as_unsigned[0]));
  EXPECT_EQ(as_unsigned[1], static_cast<float>(4294967294.0 * 0.25 + 260));
  EXPECT_EQ(as_unsigned[2], 285);
  const auto as_signed = read_packed<std::uint8_t>(path, "false", 255, {255, 200, 100, 127, 128});
  EXPECT_TRUE(std::isnan(as_signed[0]));
  EXPECT_EQ(as_signed[1], 246);
  EXPECT_EQ(as_signed[2], 285);
  EXPECT_EQ(as_signed[3], 260 + 127 * 0.25F);
  EXPECT_EQ(as_signed[4], 260 - 128 * 0.25F);
  // What is so anyway.
  EXPECT_EQ(read_packed<std::uint8_t>(path, "true", 255, {200})[0], 310);
  EXPECT_EQ(read_packed<std::int32_t>(path, "false", -1, {-8})[0], 258);
}

}  // namespace
}  // namespace garonne::data
