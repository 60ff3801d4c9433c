#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <random>

#include "data/fields/field_files.hpp"
#include "data/scratch.hpp"

namespace garonne::data {
namespace {

using testing::expect_window;
using testing::filled;
using testing::line;
using testing::put;
using testing::put_line;
using testing::query_of;
using testing::Scratch;
using testing::value_at;
using testing::YearlyFile;

// makani's files name no units, so that a name stands for the usual ones; a file that does is
// right.
TEST(FieldDataset, UnitsOfYearlyFiles) {
  const Scratch scratch;
  const std::string path = scratch.path("1979.h5");
  YearlyFile().write(path);
  const auto units = [&] { return FieldDataset::open(query_of(path)).info().target_units; };
  EXPECT_EQ(units(), (std::vector<std::string>{"m s-1", "K", "m2 s-2"}));
  testing::write_texts_attribute(path, "fields", "units", {"knots", "degC", "m"});
  EXPECT_EQ(units(), (std::vector<std::string>{"knots", "degC", "m"}));
  // Another file that says nothing does not contradict it.
  YearlyFile next;
  next.first_frame = 6;
  next.write(scratch.path("1980.h5"));
  EXPECT_EQ(FieldDataset::open(query_of(scratch.path(""))).info().runs, 1);
  // Of another number of channels they are none.
  testing::write_texts_attribute(path, "fields", "units", {"degC"});
  EXPECT_EQ(units(), (std::vector<std::string>{"m s-1", "K", "m2 s-2"}));
}

TEST(FieldDataset, OneYearlyFile) {
  const Scratch scratch;
  YearlyFile().write(scratch.path("1979.h5"));
  const FieldQuery query = query_of(scratch.path("1979.h5"));
  FieldDataset dataset = FieldDataset::open(query);
  const FieldDatasetInfo& info = dataset.info();
  EXPECT_EQ(info.layout, "yearly");
  EXPECT_EQ(info.grid, "equiangular");
  EXPECT_EQ(info.points, (std::vector<std::int64_t>{5, 8}));
  EXPECT_EQ(info.input_channels, (std::vector<std::string>{"u10", "t2m", "z500"}));
  EXPECT_EQ(info.frames, 6);
  EXPECT_EQ(info.samples, 5);
  EXPECT_EQ(info.frame_seconds, 6 * 3600);
  EXPECT_EQ(format_time(info.files[0].first_time, info.calendar), "1979-01-01 00:00");
  for (std::int64_t sample = 0; sample < info.samples; ++sample) {
    expect_window(dataset, sample, sample, query, {0, 1, 2}, {0, 1, 2});
  }
  EXPECT_EQ(dataset.sample_time(2), YearlyFile::begin + 2 * YearlyFile::step);
}

// Windows of all kinds over years that follow each other, against a plain loop over frames.
TEST(FieldDataset, WindowsAcrossFilesAreThoseOfOneLongFile) {
  const Scratch scratch;
  YearlyFile year;
  std::int64_t total = 0;
  for (const std::int64_t frames : {4, 7, 1, 5}) {
    year.frames = frames;
    year.first_frame = total;
    // Names in another order than times.
    year.write(scratch.path(std::string(1, static_cast<char>('z' - total)) + ".h5"));
    total += frames;
  }
  std::mt19937 random(5);
  for (int trial = 0; trial < 20; ++trial) {
    FieldQuery query = query_of(scratch.path(""));
    query.history = static_cast<std::int64_t>(random() % 3);
    query.lead = 1 + static_cast<std::int64_t>(random() % 3);
    query.rollout = 1 + static_cast<std::int64_t>(random() % 2);
    query.push_forward = static_cast<std::int64_t>(random() % 2);
    query.stride = 1 + static_cast<std::int64_t>(random() % 4);
    query.input_channels = {"z500", "u10"};
    query.target_channels = {"t2m", "z500"};
    FieldDataset dataset = FieldDataset::open(query);
    std::int64_t samples = 0;
    const FieldSlab slab{static_cast<std::int64_t>(random() % 4),
                         trial % 2 == 0 ? -1 : 1 + static_cast<std::int64_t>(random() % 2)};
    for (std::int64_t first = 0;
         first + (query.history + query.push_forward + query.rollout) * query.lead < total;
         first += query.stride) {
      ASSERT_LT(samples, dataset.info().samples);
      expect_window(dataset, samples++, first, query, {2, 0}, {1, 2}, slab);
    }
    EXPECT_EQ(samples, dataset.info().samples);
    EXPECT_EQ(dataset.info().runs, 1);
  }
}

TEST(FieldDataset, NoWindowCrossesAGap) {
  const Scratch scratch;
  YearlyFile year;
  year.write(scratch.path("1.h5"));
  year.first_frame = 8;  // two frames are not there
  year.write(scratch.path("2.h5"));
  // And one with a gap inside.
  year.first_frame = 20;
  year.times = line(YearlyFile::begin + 20 * YearlyFile::step, YearlyFile::step, 6);
  for (std::size_t frame = 4; frame < 6; ++frame) year.times[frame] += 10 * YearlyFile::step;
  year.write(scratch.path("3.h5"));
  const FieldQuery query = query_of(scratch.path(""));
  FieldDataset dataset = FieldDataset::open(query);
  EXPECT_EQ(dataset.info().runs, 4);
  ASSERT_EQ(dataset.info().samples, 5 + 5 + 3 + 1);
  const std::vector<std::int64_t> firsts = {0, 1, 2, 3, 4, 8, 9, 10, 11, 12, 20, 21, 22, 24};
  for (std::size_t sample = 0; sample < firsts.size(); ++sample) {
    expect_window(dataset, static_cast<std::int64_t>(sample), firsts[sample], query, {0, 1, 2},
                  {0, 1, 2});
  }
}

TEST(FieldDataset, OldFilesWithoutCoordinatesEndWithTheirYear) {
  const Scratch scratch;
  YearlyFile year;
  year.coordinates = false;
  year.write(scratch.path("1979.h5"));
  year.write(scratch.path("1980.h5"));
  scratch.write("data.json", R"({"dhours": 6, "coords": {"channel": ["a", "b", "c"]}})");
  FieldDataset dataset = FieldDataset::open(query_of(scratch.path("*.h5")));
  EXPECT_EQ(dataset.info().runs, 2);
  EXPECT_EQ(dataset.info().samples, 10);
  EXPECT_EQ(dataset.info().channels, (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(dataset.info().frame_seconds, 6 * 3600);
}

TEST(FieldDataset, TrajectoriesOfAGeneratorStayApart) {
  const Scratch scratch;
  YearlyFile year;
  year.write(scratch.path("pairs.h5"));
  {
    // As a generator of pairs of frames would have written it.
    const hid_t file = H5Fopen(scratch.path("pairs.h5").c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
    const hid_t space = H5Screate(H5S_SCALAR);
    const hid_t attribute =
        H5Acreate2(file, "trajectory_length", H5T_STD_I64LE, space, H5P_DEFAULT, H5P_DEFAULT);
    const std::int64_t length = 2;
    H5Awrite(attribute, H5T_NATIVE_INT64, &length);
    H5Aclose(attribute);
    H5Sclose(space);
    H5Fclose(file);
  }
  const FieldQuery query = query_of(scratch.path("pairs.h5"));
  FieldDataset dataset = FieldDataset::open(query);
  ASSERT_EQ(dataset.info().samples, 3);
  for (std::int64_t sample = 0; sample < 3; ++sample) {
    expect_window(dataset, sample, 2 * sample, query, {0, 1, 2}, {0, 1, 2});
  }
}

TEST(FieldDataset, PdebenchPairs) {
  const Scratch scratch;
  const std::string path = scratch.path("2D_DarcyFlow.hdf5");
  {
    Hdf5File file = Hdf5File::create(path);
    put<float>(file, "nu", {3, 4, 6},
               filled({3, 4, 6}, [](const auto& at) { return value_at(at[0], 0, at[1], at[2]); }));
    put<float>(file, "tensor", {3, 1, 4, 6}, filled({3, 1, 4, 6}, [](const auto& at) {
                 return value_at(at[0], 3, at[2], at[3]);
               }));
    put_line(file, "x-coordinate", line(0, 1.0 / 3, 4));
    put_line(file, "y-coordinate", line(0, 0.2, 6));
    file.close();
  }
  FieldDataset dataset = FieldDataset::open(query_of(path));
  const FieldDatasetInfo& info = dataset.info();
  EXPECT_EQ(info.layout, "pdebench");
  EXPECT_EQ(info.grid, "box");
  EXPECT_TRUE(info.pairs);
  EXPECT_EQ(info.samples, 3);
  EXPECT_EQ(info.input_channels, std::vector<std::string>{"nu"});
  EXPECT_EQ(info.target_channels, std::vector<std::string>{"tensor"});
  std::vector<float> input(12);
  std::vector<float> target(12);
  dataset.read(2, {1, 2}, input.data(), target.data());
  for (std::int64_t point = 0; point < 12; ++point) {
    EXPECT_EQ(input[static_cast<std::size_t>(point)], value_at(2, 0, 1 + point / 6, point % 6));
    EXPECT_EQ(target[static_cast<std::size_t>(point)], value_at(2, 3, 1 + point / 6, point % 6));
  }
  // By the keys that ask for time.
  const auto refused = [&](const std::string& key, const std::string& words, auto change) {
    FieldQuery query = query_of(path);
    change(query);
    try {
      FieldDataset::open(query);
      ADD_FAILURE() << "no error for " << key;
    } catch (const ConfigError& error) {
      EXPECT_EQ(error.key(), key);
      EXPECT_EQ(error.reason(), path + " holds pairs without time: set " + words);
    }
  };
  refused("data.history", "data.history = 0", [](FieldQuery& query) { query.history = 2; });
  refused("data.lead", "data.lead = 1", [](FieldQuery& query) { query.lead = 3; });
  refused("train.push_forward", "train.push_forward = 0",
          [](FieldQuery& query) { query.push_forward = 1; });
  refused("train.rollout", "train.rollout = 1", [](FieldQuery& query) { query.rollout = 2; });
  refused("data.history", "data.history = 0, train.rollout = 1",
          [](FieldQuery& query) { query.history = query.rollout = 2; });
}

TEST(FieldDataset, PdebenchSeriesOfOneDimension) {
  const Scratch scratch;
  const std::string path = scratch.path("1D_Burgers.hdf5");
  {
    Hdf5File file = Hdf5File::create(path);
    put<float>(file, "tensor", {2, 5, 7}, filled({2, 5, 7}, [](const auto& at) {
                 return value_at(10 * at[0] + at[1], 0, 0, at[2]);
               }));
    put_line(file, "x-coordinate", line(0.5, 1, 7));
    put_line(file, "t-coordinate", line(0, 0.01, 6));  // one more than frames
    file.close();
  }
  FieldQuery query = query_of(path);
  query.history = 1;
  FieldDataset dataset = FieldDataset::open(query);
  const FieldDatasetInfo& info = dataset.info();
  EXPECT_EQ(info.points, std::vector<std::int64_t>{7});
  EXPECT_EQ(info.grid, "periodic");
  EXPECT_NEAR(info.frame_seconds, 0.01, 1e-12);
  EXPECT_FALSE(info.in_seconds);
  EXPECT_EQ(info.runs, 2);
  ASSERT_EQ(info.samples, 2 * 3);
  std::vector<float> input(14);
  std::vector<float> target(7);
  dataset.read(4, {}, input.data(), target.data());  // frames 1, 2, 3 of the second trajectory
  EXPECT_EQ(input[0], value_at(11, 0, 0, 0));
  EXPECT_EQ(input[7 + 6], value_at(12, 0, 0, 6));
  EXPECT_EQ(target[3], value_at(13, 0, 0, 3));
}

TEST(FieldDataset, PdebenchFluidHasADatasetAQuantity) {
  const Scratch scratch;
  const std::string path = scratch.path("2D_CFD_trans.hdf5");
  {
    Hdf5File file = Hdf5File::create(path);
    std::int64_t channel = 0;
    for (const char* name : {"density", "pressure", "Vx", "Vy"}) {
      put<float>(file, name, {1, 3, 4, 5}, filled({1, 3, 4, 5}, [&](const auto& at) {
                   return value_at(at[1], channel, at[2], at[3]);
                 }));
      ++channel;
    }
    put_line(file, "x-coordinate", line(0.5, 1, 4));
    put_line(file, "y-coordinate", line(0.5, 1, 5));
    // Of these a name and a unit can be shown; the others are no texts, or too long.
    file.attributes("density").write("long_name", std::string("mass density"));
    file.attributes("density").write("units", std::string("kg m-3"));
    file.attributes("pressure").write("long_name", std::string(81, 'p'));
    file.attributes("Vx").write("units", std::vector<double>{1});
    file.close();
  }
  const FieldQuery query = query_of(path);
  FieldDataset dataset = FieldDataset::open(query);
  EXPECT_EQ(dataset.info().target_long_names,
            (std::vector<std::string>{"mass density", "", "", ""}));
  EXPECT_EQ(dataset.info().target_units, (std::vector<std::string>{"kg m-3", "", "", ""}));
  EXPECT_EQ(dataset.info().grid, "box");
  EXPECT_EQ(dataset.info().channels, (std::vector<std::string>{"density", "pressure", "Vx", "Vy"}));
  expect_window(dataset, 1, 1, query, {0, 1, 2, 3}, {0, 1, 2, 3}, {1, 3});
}

TEST(FieldDataset, PdebenchGroupsHaveChannelsLast) {
  const Scratch scratch;
  const std::string path = scratch.path("2D_diff-react_NA_NA.h5");
  {
    Hdf5File file = Hdf5File::create(path);
    for (std::int64_t sample = 0; sample < 3; ++sample) {
      const std::string group = "000" + std::to_string(sample);
      put<float>(file, group + "/data", {4, 5, 6, 2}, filled({4, 5, 6, 2}, [&](const auto& at) {
                   return value_at(20 * sample + at[0], at[3], at[1], at[2]);
                 }));
      put_line(file, group + "/grid/x", line(0.1, 0.2, 5));
      put_line(file, group + "/grid/y", line(0.1, 0.2, 6));
      put_line(file, group + "/grid/t", line(0, 0.05, 4));
    }
    file.close();
  }
  FieldQuery query = query_of(path);
  FieldDataset dataset = FieldDataset::open(query);
  EXPECT_EQ(dataset.info().channels, (std::vector<std::string>{"data_0", "data_1"}));
  EXPECT_EQ(dataset.info().runs, 3);
  ASSERT_EQ(dataset.info().samples, 9);
  for (std::int64_t sample = 0; sample < 9; ++sample) {
    expect_window(dataset, sample, 20 * (sample / 3) + sample % 3, query, {0, 1}, {0, 1}, {2, 2});
  }
  query.input_channels = {"data_1"};
  FieldDataset second = FieldDataset::open(query);
  expect_window(second, 4, 21, query, {1}, {0, 1});
}

std::int64_t resident_bytes() {
  std::ifstream stream("/proc/self/statm");
  std::int64_t whole = 0;
  std::int64_t resident = 0;
  stream >> whole >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

// Tens of files: a few open at a time, nothing else read than asked for, memory flat.
TEST(FieldDataset, ManyFilesCostNoMemory) {
  const Scratch scratch;
  YearlyFile year;
  year.rows = 33;
  year.columns = 64;
  year.frames = 20;
  year.chunk = {4, 1, 33, 64};
  constexpr std::int64_t files = 30;
  for (std::int64_t number = 0; number < files; ++number) {
    year.first_frame = number * year.frames;
    year.write(scratch.path("year" + std::to_string(100 + number) + ".h5"));
  }
  const FieldQuery query = query_of(scratch.path(""));
  FieldDataset dataset = FieldDataset::open(query);
  ASSERT_EQ(dataset.info().samples, files * year.frames - 1);
  std::vector<float> input(static_cast<std::size_t>(dataset.info().input_values(11)));
  std::vector<float> target(static_cast<std::size_t>(dataset.info().target_values(11)));
  std::int64_t early = 0;
  std::mt19937 random(3);
  for (std::int64_t sample = 0; sample < dataset.info().samples; ++sample) {
    // In order, and back and forth.
    const std::int64_t chosen =
        sample % 2 == 0 ? sample : static_cast<std::int64_t>(random()) % dataset.info().samples;
    dataset.read(chosen, {11, 11}, input.data(), target.data());
    EXPECT_LE(dataset.open_files(), FieldDataset::open_file_limit);
    if (sample == 100) early = resident_bytes();
  }
  const std::int64_t late = resident_bytes();
  std::printf("resident after 100 samples %.1f MiB, after all of %d files %.1f MiB\n",
              static_cast<double>(early) / (1 << 20), static_cast<int>(files),
              static_cast<double>(late) / (1 << 20));
#ifndef __SANITIZE_ADDRESS__  // which keeps what was freed
  EXPECT_LT(late - early, 4 << 20);
#endif
  std::int64_t descriptors = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    ++descriptors;
  }
  EXPECT_LT(descriptors, 20);
  EXPECT_EQ(dataset.values_read(), dataset.info().samples * (dataset.info().input_values(11) +
                                                             dataset.info().target_values(11)));
}

// Steps without a target are steps in time, but nothing of them is read unless it is asked for.
TEST(FieldDataset, StepsBetweenInputsAndTargets) {
  const Scratch scratch;
  YearlyFile year;
  year.frames = 12;
  year.write(scratch.path("1979.h5"));
  FieldQuery query = query_of(scratch.path("1979.h5"));
  query.push_forward = 2;
  query.rollout = 3;
  FieldDataset dataset = FieldDataset::open(query);
  const FieldDatasetInfo& info = dataset.info();
  EXPECT_EQ(info.samples, 12 - 5);
  EXPECT_EQ(info.between_values(5), 2 * 3 * 5 * 8);
  EXPECT_EQ(info.target_values(5), 3 * 3 * 5 * 8);
  EXPECT_EQ(dataset.sample_time(6), YearlyFile::begin + 6 * YearlyFile::step);
  expect_window(dataset, 6, 6, query, {0, 1, 2}, {0, 1, 2});
  EXPECT_EQ(dataset.values_read(), (1 + 3) * 3 * 5 * 8);
  std::vector<float> between(static_cast<std::size_t>(info.between_values(2)));
  dataset.read(4, {1, 2}, nullptr, nullptr, between.data());
  EXPECT_EQ(dataset.values_read(), (1 + 3) * 3 * 5 * 8 + 2 * 3 * 2 * 8);
  for (std::int64_t value = 0; value < info.between_values(2); ++value) {
    EXPECT_EQ(between[static_cast<std::size_t>(value)],
              value_at(5 + value / 48, value / 16 % 3, 1 + value / 8 % 2, value % 8));
  }
}

TEST(FieldDataset, QueriesThatCannotBe) {
  const Scratch scratch;
  YearlyFile().write(scratch.path("1979.h5"));
  const FieldQuery good = query_of(scratch.path("1979.h5"));
  const auto refused = [&](const std::string& key, auto change) {
    FieldQuery query = good;
    change(query);
    try {
      FieldDataset::open(query);
      ADD_FAILURE() << "no error for " << key;
    } catch (const ConfigError& error) {
      EXPECT_EQ(error.key(), key);
    }
  };
  refused("data.history", [](FieldQuery& query) { query.history = -1; });
  refused("data.lead", [](FieldQuery& query) { query.lead = 0; });
  refused("train.push_forward", [](FieldQuery& query) { query.push_forward = -1; });
  refused("train.rollout", [](FieldQuery& query) { query.rollout = 0; });
  refused("data.stride", [](FieldQuery& query) { query.stride = 0; });
  refused("data.missing", [](FieldQuery& query) { query.missing = "ignore"; });
  refused("data.layout", [](FieldQuery& query) { query.layout = "grib"; });
}

}  // namespace
}  // namespace garonne::data
