// What netCDF files say of their variables and dimensions, in the ways that programs write it.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "base/error.hpp"
#include "data/fields/field_files.hpp"
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

// Four daily frames of "t" on a globe of 5 rows and 8 columns, whose attributes are a test's.
struct GlobeFile {
  std::string row = "lat";
  std::string column = "lon";
  Texts row_attributes;
  Texts column_attributes;
  Texts attributes;
  std::vector<double> rows = line(90, -45, 5);

  void write(const std::string& path, const std::function<void(Hdf5File&)>& more = {},
             const std::vector<std::string>& dimensions = {}) const {
    {
      Hdf5File file = Hdf5File::create(path);
      put_line(file, "time", line(0, 1, 4));
      file.attributes("time").write("units", std::string("days since 2000-01-01"));
      put_line(file, row, rows);
      put_line(file, column, line(0, 45, 8));
      put<float>(file, "t", {4, 5, 8}, filled({4, 5, 8}, [](const auto& at) {
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

}  // namespace
}  // namespace garonne::data
