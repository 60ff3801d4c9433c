// Bad files of every kind: an IoError that names file and dataset, never a wrong value.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.hpp"
#include "data/fields/field_files.hpp"
#include "data/scratch.hpp"

namespace garonne::data {
namespace {

using testing::expect_io_error;
using testing::filled;
using testing::line;
using testing::NetcdfFile;
using testing::put;
using testing::put_line;
using testing::read_bytes;
using testing::Scratch;
using testing::value_at;
using testing::YearlyFile;

FieldDataset open(const std::string& path, const std::string& missing = "refuse") {
  FieldQuery query;
  query.path = path;
  query.missing = missing;
  return FieldDataset::open(query);
}

// The error of opening `path`, which must name the file `culprit`, and the words.
void expect_refused(const std::string& path, const std::string& culprit,
                    const std::vector<std::string>& words) {
  const std::string message = expect_io_error(culprit, words[0], [&] { open(path); });
  for (const std::string& word : words) {
    EXPECT_NE(message.find(word), std::string::npos) << message;
  }
}

TEST(BadFields, NothingThere) {
  const Scratch scratch;
  expect_refused(scratch.path("no.h5"), scratch.path("no.h5"), {"no such file"});
  expect_refused(scratch.path(""), scratch.path(""), {"no data files"});
  expect_refused(scratch.path("*.h5"), scratch.path("*.h5"), {"no file matches"});
  std::filesystem::create_directory(scratch.path("train"));
  expect_refused(scratch.path(""), scratch.path(""), {"it has the folders train"});
  const std::string text = scratch.write("text.nc", "CDF\x01 is the classic format of netCDF");
  expect_refused(text, text, {"not an HDF5 file", "netCDF-3", "nccopy -k nc4"});
  const std::string grib = scratch.write("era.h5", "GRIB" + std::string(96, '1'));
  expect_refused(grib, grib, {"not an HDF5 file", "cdo -f nc4 copy"});
  const std::string foreign = scratch.path("foreign.h5");
  Hdf5File::create(foreign).close();
  expect_refused(foreign, foreign, {"no known layout", "yearly", "pdebench", "well", "netcdf"});
}

TEST(BadFields, WrongRank) {
  const Scratch scratch;
  YearlyFile year;
  year.shape = {6, 3, 40};
  const std::string path = scratch.path("1979.h5");
  year.write(path);
  expect_refused(
      path, path,
      {"dataset \"fields\"", "3 dimensions", "[6, 3, 40]", "[time, channel, latitude, longitude]"});
}

TEST(BadFields, SwappedAxes) {
  const Scratch scratch;
  const std::string path = scratch.path("1979.h5");
  YearlyFile year;
  year.shape = {6, 3, 8, 5};  // longitude, latitude
  year.write(path);
  expect_refused(path, path, {"dataset \"fields\"", "latitude", "swapped"});
  year.shape = {6, 5, 8, 3};  // channels last
  year.write(path);
  expect_refused(path, path, {"dataset \"fields\"", "swapped"});
  year.shape = {3, 6, 5, 8};  // channel, time
  year.write(path);
  expect_refused(path, path, {"dataset \"timestamp\"", "swapped"});
  // Without coordinates there is only the shape to tell.
  year.coordinates = false;
  year.shape = {6, 5, 8, 3};
  year.write(path);
  expect_refused(path, path, {"dataset \"fields\"", "swapped"});
}

TEST(BadFields, MissingChannel) {
  const Scratch scratch;
  YearlyFile year;
  year.write(scratch.path("1.h5"));
  year.first_frame = 6;
  year.channels = {"u10", "z500"};
  year.write(scratch.path("2.h5"));
  expect_refused(scratch.path(""), scratch.path("2.h5"),
                 {"dataset \"fields\"", "\"t2m\" is missing", scratch.path("1.h5")});
  year.channels = {"u10", "t2m", "z500"};
  year.shape = {6, 2, 5, 8};  // fewer than it names
  year.write(scratch.path("2.h5"));
  expect_refused(scratch.path("2.h5"), scratch.path("2.h5"),
                 {"dataset \"fields\"", "2 channels", "names 3"});
  FieldQuery query;
  query.path = scratch.path("1.h5");
  query.input_channels = {"u10", "q700"};
  expect_io_error(query.path, "there is no channel \"q700\"; there are u10, t2m, z500",
                  [&] { FieldDataset::open(query); });
  query.input_channels = {"u10", "z"};
  expect_io_error(query.path,
                  "there is no channel \"z\"; there are z500, each a channel of its own",
                  [&] { FieldDataset::open(query); });
  YearlyFile levels;
  levels.channels = {"ps", "t_500", "t_850"};
  levels.write(scratch.path("levels.h5"));
  query.path = scratch.path("levels.h5");
  query.input_channels = {"t"};
  expect_io_error(query.path, "there is no channel \"t\"; there are t_500, t_850, each a channel",
                  [&] { FieldDataset::open(query); });
  query.path = scratch.path("1.h5");
  // A channel twice is a mistake of the one who names it.
  for (auto* names : {&query.input_channels, &query.target_channels}) {
    query.input_channels = query.target_channels = {"u10"};
    *names = {"t2m", "u10", "t2m"};
    const std::string key = names == &query.input_channels ? "data.inputs" : "data.targets";
    try {
      FieldDataset::open(query);
      ADD_FAILURE() << key << " was not refused";
    } catch (const ConfigError& error) {
      EXPECT_EQ(error.key() + " " + error.value(), key + " t2m");
    }
  }
}

TEST(BadFields, AnotherSizeInAnotherYear) {
  const Scratch scratch;
  YearlyFile year;
  year.write(scratch.path("1.h5"));
  year.first_frame = 6;
  year.rows = 9;
  year.columns = 16;
  year.write(scratch.path("2.h5"));
  expect_refused(scratch.path(""), scratch.path("2.h5"),
                 {"dataset \"fields\"", "[9, 16]", "[5, 8]", scratch.path("1.h5")});
}

TEST(BadFields, ValuesThatAreNone) {
  const Scratch scratch;
  const std::string path = scratch.path("1979.h5");
  const auto nan = std::numeric_limits<float>::quiet_NaN();
  // Frame 2, channel 1 (t2m), row 3: a slab of NaN.
  const auto spoil = [&](std::vector<float>& values) {
    for (std::size_t column = 0; column < 8; ++column) {
      values[((2 * 3 + 1) * 5 + 3) * 8 + column] = nan;
    }
    values[0] = std::numeric_limits<float>::infinity();
  };
  YearlyFile().write(path, spoil);
  std::vector<float> input(3 * 5 * 8);
  std::vector<float> target(3 * 5 * 8);
  {
    FieldDataset dataset = open(path);
    const std::string message =
        expect_io_error(path, "t2m", [&] { dataset.read(1, {}, input.data(), target.data()); });
    for (const char* word : {"dataset \"fields\"", "row 3", "column 0", "frame 2", "NaN", "mask"}) {
      EXPECT_NE(message.find(word), std::string::npos) << message;
    }
    expect_io_error(path, "infinite", [&] { dataset.read(0, {}, input.data(), nullptr); });
    // What was not asked for does not matter.
    EXPECT_NO_THROW(dataset.read(1, {0, 3}, input.data(), target.data()));
    EXPECT_NO_THROW(dataset.read(3, {}, input.data(), target.data()));
  }
  FieldDataset masked = open(path, "mask");
  masked.read(1, {}, input.data(), target.data());
  for (std::size_t index = 0; index < target.size(); ++index) {
    EXPECT_EQ(std::isnan(target[index]), index / 8 == 5 + 3) << index;
  }
}

TEST(BadFields, WhatAFileCallsInvalidIsNotUsed) {
  const Scratch scratch;
  const std::string path = scratch.path("1979.h5");
  YearlyFile year;
  year.valid.assign(18, 1);
  year.valid[4 * 3 + 2] = 0;
  year.write(path);
  std::vector<float> values(3 * 5 * 8);
  FieldDataset dataset = open(path);
  EXPECT_NO_THROW(dataset.read(2, {}, values.data(), nullptr));
  expect_io_error(path, "z500", [&] { dataset.read(3, {}, nullptr, values.data()); });
}

TEST(BadFields, TruncatedFile) {
  const Scratch scratch;
  const std::string path = scratch.path("1979.h5");
  YearlyFile().write(path);
  const std::string whole = read_bytes(path);
  for (const std::size_t bytes : {std::size_t{10}, whole.size() / 2, whole.size() - 1}) {
    scratch.write("1979.h5", whole.substr(0, bytes));
    expect_refused(path, path, {"truncated"});
  }
  // Cut while it is open: HDF5 would read zeros.
  scratch.write("1979.h5", whole);
  FieldDataset dataset = open(path);
  std::vector<float> values(3 * 5 * 8);
  dataset.read(0, {}, values.data(), values.data());
  std::filesystem::resize_file(path, whole.size() / 2);
  const std::string message =
      expect_io_error(path, "truncated", [&] { dataset.read(4, {}, nullptr, values.data()); });
  EXPECT_NE(message.find("\"fields\""), std::string::npos) << message;
}

TEST(BadFields, FileThatChangesWhileInUse) {
  const Scratch scratch;
  YearlyFile year;
  for (const char* name : {"1.h5", "2.h5", "3.h5", "4.h5", "5.h5", "6.h5"}) {
    year.write(scratch.path(name));
    year.first_frame += year.frames;
  }
  FieldDataset dataset = open(scratch.path(""));
  std::vector<float> values(3 * 5 * 8);
  for (std::int64_t sample = 0; sample < 30; ++sample)
    dataset.read(sample, {}, values.data(), nullptr);
  // The first one is closed by now; it comes back shorter, as of fewer frames.
  year.first_frame = 0;
  year.frames = 3;
  year.write(scratch.path("1.h5"));
  expect_io_error(scratch.path("1.h5"), "has changed",
                  [&] { dataset.read(0, {}, values.data(), nullptr); });
}

TEST(BadFields, Times) {
  const Scratch scratch;
  YearlyFile year;
  const std::string path = scratch.path("1.h5");
  year.times = line(YearlyFile::begin, YearlyFile::step, 6);
  std::swap(year.times[3], year.times[4]);
  year.write(path);
  expect_refused(path, path, {"times do not ascend", "frame 4"});
  year.times = line(YearlyFile::begin, YearlyFile::step, 5);
  year.write(path);
  expect_refused(path, path, {"dataset \"timestamp\"", "5 times", "6 frames"});
  // Two files of one time.
  year.times.clear();
  year.write(path);
  year.first_frame = 3;
  year.write(scratch.path("2.h5"));
  expect_refused(scratch.path(""), scratch.path("2.h5"), {"1979-01-01 18:00", "1979-01-02 06:00"});
}

TEST(BadFields, WindowLongerThanEveryRun) {
  const Scratch scratch;
  YearlyFile().write(scratch.path("1979.h5"));
  FieldQuery query;
  query.path = scratch.path("1979.h5");
  query.lead = 3;
  query.rollout = 2;
  expect_io_error(query.path,
                  "a window takes 7 frames (data.lead = 3, train.rollout = 2), but the longest run "
                  "of frames without a gap has 6",
                  [&] { FieldDataset::open(query); });
  query.windows = false;
  EXPECT_EQ(FieldDataset::open(query).info().samples, 0);
  EXPECT_EQ(FieldDataset::open(query).info().frames, 6);
  FieldQuery longer;
  longer.path = query.path;
  longer.history = 6;
  expect_io_error(query.path, "a window takes 8 frames (data.history = 6), but",
                  [&] { FieldDataset::open(longer); });
  longer.history = 0;
  longer.push_forward = 5;
  expect_io_error(query.path, "a window takes 7 frames (train.push_forward = 5), but",
                  [&] { FieldDataset::open(longer); });
  YearlyFile single;
  single.frames = 1;
  single.times = {YearlyFile::begin};
  single.write(scratch.path("single.h5"));
  longer.path = scratch.path("single.h5");
  longer.push_forward = 0;
  expect_io_error(longer.path, "a window takes 2 frames, but", [&] { FieldDataset::open(longer); });
}

TEST(BadFields, PdebenchThatDoesNotGoTogether) {
  const Scratch scratch;
  const std::string path = scratch.path("darcy.hdf5");
  const auto write = [&](std::vector<std::int64_t> nu, std::vector<std::int64_t> tensor,
                         std::int64_t columns) {
    const auto nothing = [](const auto&) { return 0.0F; };
    Hdf5File file = Hdf5File::create(path);
    put<float>(file, "nu", nu, filled(nu, nothing));
    put<float>(file, "tensor", tensor, filled(tensor, nothing));
    put_line(file, "x-coordinate", line(0, 1, 4));
    put_line(file, "y-coordinate", line(0, 1, columns));
    file.close();
  };
  write({3, 4, 6}, {2, 1, 4, 6}, 6);
  expect_refused(path, path, {"dataset \"nu\"", "[3, 4, 6]", "[2, 1, 4, 6]"});
  write({3, 6, 4}, {3, 1, 6, 4}, 6);
  expect_refused(path, path, {"dataset \"tensor\"", "x", "swapped"});
  write({3, 4, 6}, {3, 4, 6}, 6);
  expect_refused(path, path, {"dataset \"nu\""});
}

TEST(BadFields, NetcdfThatIsNotAsItShouldBe) {
  const Scratch scratch;
  const std::string path = scratch.path("model.nc");
  NetcdfFile file;
  file.swapped = true;
  file.write(path);
  expect_refused(path, path, {"dataset \"t2m\"", "(time, longitude, latitude)", "swapped"});
  file.swapped = false;
  file.calendar = "martian";
  file.write(path);
  expect_refused(path, path, {"dataset \"time\"", "martian"});
  file.calendar = "standard";
  file.time_units = "months since 1850-01-01";
  file.write(path);
  expect_refused(path, path, {"dataset \"time\"", "months since 1850-01-01"});
}

}  // namespace
}  // namespace garonne::data
