// The Well's and netCDF files, made here and real ones.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <numbers>
#include <stdexcept>

#include "base/error.hpp"
#include "base/file.hpp"
#include "data/fields/field_files.hpp"
#include "data/hdf5/virtual_files.hpp"
#include "data/layouts/field_layout.hpp"
#include "data/scratch.hpp"

namespace garonne::data {
namespace {

using testing::expect_window;
using testing::filled;
using testing::line;
using testing::NetcdfFile;
using testing::put;
using testing::put_line;
using testing::query_of;
using testing::Scratch;
using testing::value_at;

// --- kinds of grids ---

TEST(FieldGrids, Equiangular) {
  EXPECT_EQ(sphere_grid_of(line(90, -0.25, 721), line(0, 0.25, 1440)).grid, "equiangular");
  EXPECT_EQ(sphere_grid_of(line(90, -0.25, 720), line(0, 0.25, 1440)).grid, "equiangular");
  EXPECT_EQ(sphere_grid_of(line(-89.5, 1, 180), line(-179.5, 1, 360)).grid,
            "equiangular-midpoints");
  EXPECT_EQ(sphere_grid_of(line(87.1875, -5.625, 32), line(0, 5.625, 64)).grid,
            "equiangular-midpoints");
  EXPECT_EQ(sphere_grid_of(line(15, 1.25, 37), line(225, 1.875, 49)).grid, "regional");
  EXPECT_EQ(sphere_grid_of(line(-5, 0.5, 20), line(0, 0.5, 720)).grid, "regional");
}

TEST(FieldGrids, RegionalSaysWhy) {
  const auto reason = [](const std::vector<double>& latitudes,
                         const std::vector<double>& longitudes) {
    const SphereGridFound found = sphere_grid_of(latitudes, longitudes);
    EXPECT_EQ(found.grid, "regional");
    return found.reason;
  };
  const auto says = [](const std::string& text, const std::string& wanted) {
    EXPECT_NE(text.find(wanted), std::string::npos) << text;
  };
  const std::vector<double> globe = line(90, -10, 19);
  says(reason(globe, line(0, 10, 37)), "last column, at 360, is the first one, at 0, once more");
  std::vector<double> wrapped = line(180, 10, 18);
  const std::vector<double> west = line(0, 10, 18);
  wrapped.insert(wrapped.end(), west.begin(), west.end());
  says(reason(globe, wrapped), "jump from 350 to 0");
  says(reason(globe, line(0, 10, 20)), "from 0 to 190, not around the globe");
  says(reason(globe, {0, 1, 3, 7}), "longitudes are not evenly spaced");
  says(reason(line(90, -10, 10), line(0, 10, 36)), "from 90 to 0, not from pole to pole");
  says(reason({90, 45, 0, -30, -90}, line(0, 10, 36)), "neither evenly spaced nor Gauss");
  EXPECT_EQ(sphere_grid_of(globe, line(0, 10, 36)).reason, "");
}

TEST(FieldGrids, LegendreGauss) {
  // Zeros of P8, 180/π · asin of those in Abramowitz and Stegun, table 25.4.
  const std::vector<double> positive = {0.183434642495650, 0.525532409916329, 0.796666477413627,
                                        0.960289856497536};
  std::vector<double> latitudes;
  for (std::size_t index = 4; index-- > 0;) {
    latitudes.push_back(std::asin(positive[index]) * 180 / std::numbers::pi);
  }
  for (const double zero : positive) {
    latitudes.push_back(-std::asin(zero) * 180 / std::numbers::pi);
  }
  EXPECT_EQ(sphere_grid_of(latitudes, line(0, 22.5, 16)).grid, "legendre-gauss");
  latitudes[2] += 1;
  EXPECT_EQ(sphere_grid_of(latitudes, line(0, 22.5, 16)).grid, "regional");
}

// --- yearly files that do not say all ---

// Of files without them, latitudes are those of the grid, where its size tells which that is.
TEST(FieldLayouts, GlobalYearsWithoutCoordinates) {
  const Scratch scratch;
  const auto info_of = [&](std::int64_t rows, std::int64_t columns, const std::string& json) {
    testing::YearlyFile year;
    year.coordinates = false;
    year.rows = rows;
    year.columns = columns;
    year.write(scratch.path("1979.h5"));
    write_file_durably(scratch.path("data.json"), json);
    return FieldDataset::open(query_of(scratch.path("1979.h5"))).info();
  };
  // Both poles, and without the last row.
  FieldDatasetInfo info = info_of(5, 8, "{}");
  EXPECT_EQ(info.coordinates, (std::vector{line(90, -45, 5), line(0, 45, 8)}));
  EXPECT_EQ(info.grid, "equiangular");
  ASSERT_EQ(info.notes.size(), 1U);
  EXPECT_NE(info.notes[0].find("90 to -90 from north to south"), std::string::npos);
  info = info_of(4, 8, R"({"coords": {"grid_type": "equiangular"}})");
  EXPECT_EQ(info.coordinates[0], line(90, -45, 4));
  EXPECT_EQ(info.grid, "equiangular");
  // Gauss latitudes of any number: zeros of P2 are ±1/sqrt(3).
  info = info_of(2, 7, R"({"coords": {"grid_type": "legendre-gauss"}})");
  EXPECT_EQ(info.grid, "legendre-gauss");
  ASSERT_EQ(info.coordinates[0].size(), 2U);
  EXPECT_NEAR(info.coordinates[0][0], std::asin(1 / std::sqrt(3.0)) * 180 / std::numbers::pi, 1e-9);
  // Any others they may be.
  info = info_of(5, 9, "{}");
  EXPECT_TRUE(info.coordinates.empty());
  EXPECT_TRUE(info.notes.empty());
}

TEST(FieldLayouts, YearsThatContradictThemselvesAreRefused) {
  const Scratch scratch;
  const std::string path = scratch.path("1979.h5");
  const auto refused = [&](const testing::YearlyFile& year, const std::string& why) {
    year.write(path);
    testing::expect_io_error(path, why, [&] { FieldDataset::open(query_of(path)); });
  };
  testing::YearlyFile year;
  year.channels = {"t2m", "u10", "t2m"};
  refused(year, "dataset \"channel\" calls two channels \"t2m\"");
  year = {};
  for (double& time : year.times = line(testing::YearlyFile::begin, testing::YearlyFile::step, 6))
    time *= 1e9;
  refused(year, "they look like nanoseconds; divide them by 1e+09");
  for (double& time : year.times) time /= 1e6;
  refused(year, "they look like milliseconds; divide them by 1000");
  year = {};
  write_file_durably(scratch.path("data.json"), R"({"coords": {"grid_type": "legendre-gauss"}})");
  refused(year, "calls its grid legendre-gauss, but its latitudes, 90 to -90, are equally spaced");
}

// --- makani's virtual files ---

TEST(FieldLayouts, MakaniVirtualYearsAndChannels) {
  const Scratch scratch;
  const testing::VirtualYears years;
  years.write_sources(scratch.path("data"));
  const std::string path = scratch.path("data/all.h5v");
  years.write_virtual(path);
  FieldQuery query = query_of(path);
  query.history = 1;
  query.rollout = 2;
  for (const std::string& place : {path, scratch.path("data/*.h5v"), scratch.path("data")}) {
    query.path = place;
    FieldDataset dataset = FieldDataset::open(query);
    const FieldDatasetInfo& info = dataset.info();
    EXPECT_EQ(info.layout, "yearly");
    EXPECT_EQ(info.channels, (std::vector<std::string>{"u10", "t2m", "z500"}));
    EXPECT_EQ(info.files[0].storage, "float32, virtual of 4 files");
    EXPECT_EQ(info.frames, 11);
    EXPECT_EQ(info.runs, 1);  // over the end of the year, too
    ASSERT_EQ(info.samples, 8);
    for (std::int64_t sample = 0; sample < info.samples; ++sample) {
      expect_window(dataset, sample, sample, query, {0, 1, 2}, {0, 1, 2});
      expect_window(dataset, sample, sample, query, {0, 1, 2}, {0, 1, 2}, {2, 2});
    }
  }
  query.input_channels = {"z500", "u10"};
  query.target_channels = {"t2m"};
  FieldDataset chosen = FieldDataset::open(query);
  expect_window(chosen, 5, 5, query, {2, 0}, {1}, {1, 3});

  // Beside its sources it would be read twice.
  std::filesystem::copy(years.source(scratch.path("data"), 0, 0), scratch.path("data/1979.h5"));
  testing::expect_io_error(scratch.path("data"), "virtual files (.h5v) beside others",
                           [&] { FieldDataset::open(query_of(scratch.path("data"))); });
}

// Every second frame of the sources without their last row, as FourCastNet drops it.
TEST(FieldLayouts, MakaniVirtualYearsInSteps) {
  const Scratch scratch;
  testing::VirtualYears years;
  years.groups = {{"u10", "t2m", "z500"}};
  years.folders = {"data"};
  years.lengths = {6, 5};
  years.write_sources(scratch.path(""));
  testing::VirtualDataset fields({6, 3, 4, 8}, H5T_IEEE_F32LE);
  hsize_t frame = 0;
  for (std::size_t year = 0; year < 2; ++year) {
    using testing::range;
    fields.map({{range(frame, 3), range(0, 3), range(0, 4), range(0, 8)}},
               std::to_string(1979 + year) + ".h5", "fields", {years.lengths[year], 3, 5, 8},
               {{{0, 2, 3, 1}, range(0, 3), range(0, 4), range(0, 8)}});
    frame += 3;
  }
  testing::YearlyFile all;
  all.rows = 4;
  all.frames = 6;
  all.times = line(testing::YearlyFile::begin, 2 * testing::YearlyFile::step, 6);
  write_virtual_year(scratch.path("data/coarse.h5v"), all, fields);
  FieldDataset dataset = FieldDataset::open(query_of(scratch.path("data/coarse.h5v")));
  EXPECT_EQ(dataset.info().frame_seconds, 2 * testing::YearlyFile::step);
  ASSERT_EQ(dataset.info().frames, 6);
  std::vector<float> values(3 * 4 * 8);
  for (std::int64_t wanted = 0; wanted < 6; ++wanted) {
    dataset.read_frame(wanted, {}, values.data(), nullptr);
    EXPECT_EQ(values, testing::filled({3, 4, 8}, [&](const auto& at) {
                return value_at(2 * wanted, at[0], at[1], at[2]);
              }));
  }
}

// --- The Well ---

void write_truth(Hdf5File& file, const std::string& object, const std::string& name, double value) {
  file.attributes(object).write(name, std::vector<double>{value});
}

// Two trajectories of 3 frames on 4 × 6 points: height, a vector and a field that stays.
void write_well(const std::string& path, const std::vector<std::string>& axes,
                const std::vector<std::vector<double>>& coordinates) {
  {
    Hdf5File file = Hdf5File::create(path);
    for (std::size_t axis = 0; axis < 2; ++axis) {
      put_line(file, "dimensions/" + axes[axis], coordinates[axis]);
      write_truth(file, "dimensions/" + axes[axis], "sample_varying", 0);
    }
    put_line(file, "dimensions/time", line(0, 2, 3));
    for (const char* group : {"t0_fields", "t1_fields", "t2_fields", "boundary_conditions"}) {
      file.create_group(group);
    }
    file.create_group("boundary_conditions/everywhere");
    file.attributes("boundary_conditions/everywhere").write("bc_type", std::string("PERIODIC"));
    put<float>(file, "t0_fields/height", {2, 3, 4, 6}, filled({2, 3, 4, 6}, [](const auto& at) {
                 return value_at(10 * at[0] + at[1], 0, at[2], at[3]);
               }));
    put<float>(file, "t0_fields/mask", {4, 6},
               filled({4, 6}, [](const auto& at) { return value_at(50, 0, at[0], at[1]); }));
    write_truth(file, "t0_fields/mask", "sample_varying", 0);
    write_truth(file, "t0_fields/mask", "time_varying", 0);
    put<float>(file, "t1_fields/velocity", {2, 3, 4, 6, 2},
               filled({2, 3, 4, 6, 2}, [](const auto& at) {
                 return value_at(10 * at[0] + at[1], 1 + at[4], at[2], at[3]);
               }));
    put<float>(file, "t2_fields/D", {2, 3, 4, 6, 2, 2},
               filled({2, 3, 4, 6, 2, 2}, [](const auto& at) {
                 return value_at(100 + 10 * at[0] + at[1], 2 * at[4] + at[5], at[2], at[3]);
               }));
    file.close();
  }
  // A list of strings, which our own writer has no use for.
  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
  const hid_t group = H5Gopen2(file, "dimensions", H5P_DEFAULT);
  const hid_t type = H5Tcopy(H5T_C_S1);
  H5Tset_size(type, H5T_VARIABLE);
  const hsize_t count = 2;
  const hid_t space = H5Screate_simple(1, &count, nullptr);
  const hid_t attribute = H5Acreate2(group, "spatial_dims", type, space, H5P_DEFAULT, H5P_DEFAULT);
  const char* names[] = {axes[0].c_str(), axes[1].c_str()};
  H5Awrite(attribute, type, names);
  H5Aclose(attribute);
  H5Sclose(space);
  H5Tclose(type);
  H5Gclose(group);
  H5Fclose(file);
}

TEST(FieldLayouts, TheWell) {
  const Scratch scratch;
  const std::string path = scratch.path("active_matter.hdf5");
  write_well(path, {"x", "y"}, {line(0, 1, 4), line(0, 1, 6)});
  FieldQuery query = query_of(path);
  FieldDataset dataset = FieldDataset::open(query);
  const FieldDatasetInfo& info = dataset.info();
  EXPECT_EQ(info.layout, "well");
  EXPECT_EQ(info.grid, "periodic");
  EXPECT_EQ(info.channels, (std::vector<std::string>{"height", "mask", "velocity_x", "velocity_y",
                                                     "D_xx", "D_xy", "D_yx", "D_yy"}));
  // What stays is left out unless named.
  EXPECT_EQ(info.input_channels.size(), 7U);
  EXPECT_EQ(info.runs, 2);
  EXPECT_EQ(info.samples, 4);
  EXPECT_EQ(info.frame_seconds, 2);
  EXPECT_FALSE(info.in_seconds);
  query.input_channels = {"velocity_y", "height", "velocity_x"};
  query.target_channels = {"velocity_x", "velocity_y"};
  FieldDataset chosen = FieldDataset::open(query);
  for (std::int64_t sample = 0; sample < 4; ++sample) {
    expect_window(chosen, sample, 10 * (sample / 2) + sample % 2, query, {2, 0, 1}, {1, 2}, {1, 2});
  }
  query.input_channels = {"mask", "D_yx"};
  FieldDataset constant = FieldDataset::open(query);
  std::vector<float> input(48);
  constant.read(3, {}, input.data(), nullptr);
  EXPECT_EQ(input[7], value_at(50, 0, 1, 1));
  EXPECT_EQ(input[24 + 7], value_at(111, 2, 1, 1));
  query.target_channels = {"mask"};
  try {
    FieldDataset::open(query);
    ADD_FAILURE() << "predicts what stays";
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.key(), "data.targets");
  }
}

TEST(FieldLayouts, TheWellOnASphere) {
  const Scratch scratch;
  const std::string path = scratch.path("planetswe.hdf5");
  constexpr double radians = std::numbers::pi / 180;
  write_well(path, {"theta", "phi"},
             {line(22.5 * radians, 45 * radians, 4), line(0, 60 * radians, 6)});
  const FieldDataset dataset = FieldDataset::open(query_of(path));
  EXPECT_EQ(dataset.info().grid, "equiangular-midpoints");
  EXPECT_EQ(dataset.info().axes[0], "latitude");
  EXPECT_NEAR(dataset.info().coordinates[0][0], 67.5, 1e-9);
  EXPECT_NEAR(dataset.info().coordinates[0][3], -67.5, 1e-9);
}

// --- netCDF ---

TEST(FieldLayouts, NetcdfByVariablesLevelsAndPacking) {
  const Scratch scratch;
  const std::string path = scratch.path("model.nc");
  NetcdfFile().write(path);
  FieldQuery query = query_of(path);
  query.missing = "mask";
  FieldDataset dataset = FieldDataset::open(query);
  const FieldDatasetInfo& info = dataset.info();
  EXPECT_EQ(info.layout, "netcdf");
  EXPECT_EQ(info.grid, "regional");
  EXPECT_EQ(info.channels, (std::vector<std::string>{"orography", "t2m", "u_850", "u_500"}));
  EXPECT_EQ(info.input_channels, (std::vector<std::string>{"t2m", "u_850", "u_500"}));
  EXPECT_EQ(info.frame_seconds, 30 * 86400);
  EXPECT_EQ(format_time(info.files[0].last_time, info.calendar), "1850-04-01 00:00");
  std::vector<float> input(36);
  dataset.read(0, {}, input.data(), nullptr);
  EXPECT_TRUE(std::isnan(input[5]));
  EXPECT_EQ(input[6], 0.5F * value_at(0, 0, 1, 2) + 1000.0F);
  EXPECT_EQ(input[12], value_at(0, 1, 0, 0));
  EXPECT_EQ(input[24 + 11], value_at(0, 2, 2, 3));

  query.input_channels = {"orography", "t2m"};
  query.target_channels = {"u_500"};
  FieldDataset chosen = FieldDataset::open(query);
  std::vector<float> target(12);
  chosen.read(2, {1, 1}, input.data(), target.data());
  EXPECT_EQ(input[3], value_at(100, 0, 1, 3));
  EXPECT_EQ(input[4], 0.5F * value_at(2, 0, 1, 0) + 1000.0F);
  EXPECT_EQ(target[2], value_at(3, 2, 1, 2));

  query.missing = "refuse";
  FieldDataset strict = FieldDataset::open(query);
  testing::expect_io_error(path, "dataset \"t2m\": channel \"t2m\" has no finite value",
                           [&] { strict.read(0, {}, input.data(), nullptr); });
  EXPECT_NO_THROW(strict.read(0, {0, 1}, input.data(), nullptr));
}

TEST(FieldLayouts, NetcdfFilesThatFollowEachOtherAreOneRun) {
  const Scratch scratch;
  NetcdfFile file;
  file.write(scratch.path("a.nc"));
  file.first_frame = 4;
  file.write(scratch.path("b.nc"));
  FieldQuery query = query_of(scratch.path(""));
  query.input_channels = query.target_channels = {"u_850"};
  {
    FieldDataset dataset = FieldDataset::open(query);
    EXPECT_EQ(dataset.info().runs, 1);
    ASSERT_EQ(dataset.info().samples, 7);
    for (std::int64_t sample = 0; sample < 7; ++sample) {
      expect_window(dataset, sample, sample, query, {1}, {1});
    }
  }
  // Other members of an ensemble have the same times: they are runs of their own.
  file.write(scratch.path("c.nc"));
  FieldDataset dataset = FieldDataset::open(query);
  EXPECT_EQ(dataset.info().runs, 2);
  EXPECT_EQ(dataset.info().samples, 7 + 3);
}

// Real files, which scripts/test gets. Values read with netCDF4-python 1.7.
std::string real_file(const std::string& name) {
  const std::string path = std::string(GARONNE_SOURCE_DIR) + "/data/climate/" + name;
  if (!std::filesystem::exists(path))
    throw std::runtime_error(path + " is missing; scripts/fetch-data --only climate makes it");
  return path;
}

TEST(RealFiles, NorthAmericanTemperature) {
  const std::string path = real_file("A1B_north_america.nc");
  FieldDataset dataset = FieldDataset::open(query_of(path));
  const FieldDatasetInfo& info = dataset.info();
  EXPECT_EQ(info.channels, std::vector<std::string>{"air_temperature"});
  EXPECT_EQ(info.points, (std::vector<std::int64_t>{37, 49}));
  EXPECT_EQ(info.grid, "regional");
  EXPECT_EQ(info.samples, 239);
  EXPECT_EQ(info.frame_seconds, 360.0 * 86400);
  EXPECT_EQ(format_time(info.files[0].first_time, info.calendar), "1860-06-01 00:00");
  std::vector<float> input(37 * 49);
  std::vector<float> target(37 * 49);
  double sum = 0;
  for (std::int64_t sample = 0; sample < 239; ++sample) {
    dataset.read(sample, {}, input.data(), target.data());
    if (sample == 0) {
      EXPECT_FLOAT_EQ(input[0], 296.07858F);
      EXPECT_FLOAT_EQ(input[1], 296.17642F);
    }
    for (const float value : input) sum += static_cast<double>(value);
  }
  for (const float value : target) sum += static_cast<double>(value);
  EXPECT_NEAR(sum / (240 * 37 * 49), 286.4776362867122, 1e-9);
}

TEST(RealFiles, TwoScenariosAreTwoRuns) {
  const std::string path = real_file("A1B_north_america.nc");
  const std::string folder = std::filesystem::path(path).parent_path().string();
  const FieldDataset dataset = FieldDataset::open(query_of(folder + "/*_north_america.nc"));
  EXPECT_EQ(dataset.info().runs, 2);
  EXPECT_EQ(dataset.info().samples, 2 * 239);
}

TEST(RealFiles, SeaSurfaceTemperatureHasLand) {
  const std::string path = real_file("ostia_monthly.nc");
  FieldQuery query = query_of(path);
  std::vector<float> values(18 * 432);
  {
    FieldDataset dataset = FieldDataset::open(query);
    // Months are not of one length, yet follow each other.
    EXPECT_EQ(dataset.info().runs, 1);
    EXPECT_EQ(dataset.info().samples, 53);
    testing::expect_io_error(path, "surface_temperature",
                             [&] { dataset.read(0, {}, values.data(), nullptr); });
  }
  query.missing = "mask";
  FieldDataset dataset = FieldDataset::open(query);
  std::int64_t missing = 0;
  double sum = 0;
  std::int64_t there = 0;
  for (std::int64_t frame = 0; frame < 54; ++frame) {
    dataset.read_frame(frame, {}, values.data(), nullptr);
    for (const float value : values) {
      missing += std::isnan(value) ? 1 : 0;
      if (std::isnan(value)) continue;
      sum += static_cast<double>(value);
      ++there;
    }
  }
  EXPECT_EQ(missing, 110970);
  EXPECT_NEAR(sum / static_cast<double>(there), 300.808438158795, 1e-9);
}

}  // namespace
}  // namespace garonne::data
