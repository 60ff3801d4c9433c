// Generators under one to three ranks: what they write, and that the files do not depend on the
// ranks. Those of shallow water are in test_shallow_water_files.cpp.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "data/fields/field_dataset.hpp"
#include "data/generate/darcy_solver.hpp"
#include "data/generate/gaussian_field.hpp"
#include "data/generate/generate_darcy.hpp"
#include "data/generate/generate_navier_stokes.hpp"
#include "data/generate/generate_shallow_water.hpp"
#include "data/generate/generate_synthetic_era5.hpp"
#include "data/generate/generator_ranks.hpp"
#include "data/generate/vorticity_solver.hpp"
#include "data/hdf5/hdf5.hpp"
#include "dist/session.hpp"

namespace garonne::data {
namespace {

namespace fs = std::filesystem;
using test::expect_same_files;
using test::SharedScratch;
using test::small_shallow_water;

DarcyGeneration small_darcy(const std::string& folder) {
  DarcyGeneration generation;
  generation.output = folder + "/train.h5";
  generation.test_output = folder + "/test.h5";
  generation.samples = 4;
  generation.test_samples = 3;
  generation.resolution = 17;
  generation.stride = 4;
  generation.show_progress = false;
  return generation;
}

TEST(Generators, DarcyWritesItsSolutions) {
  dist::Session session = dist::Session::start();
  const SharedScratch scratch(session);
  DarcySummary summary;
  const std::string folder = expect_same_files(
      session, scratch,
      [&](dist::Session& ranks, const std::string& to) {
        summary = generate_darcy(ranks, small_darcy(to));
      },
      2);
  if (session.rank() != 0) return;
  const DarcyGeneration generation = small_darcy(folder);
  DarcySolver solver(17);
  double sum = 0;
  for (std::int64_t sample = 0; sample < 7; ++sample) {
    auto a = neumann_gaussian_field({2, 3}, 17, philox_key(0, "data darcy"),
                                    static_cast<std::uint64_t>(sample));
    for (double& value : a) value = value >= 0 ? 12 : 3;
    const auto u = solver.solve(a, 1);
    for (const double value : u) sum += value;
    const Hdf5File file = Hdf5File::open(sample < 4 ? generation.output : generation.test_output);
    const auto inputs = file.dataset("nu").read_all<float>();
    const auto outputs = file.dataset("tensor").read_all<float>();
    const auto first = static_cast<std::size_t>(sample < 4 ? sample : sample - 4) * 25;
    for (std::size_t i = 0; i < 5; ++i) {
      for (std::size_t j = 0; j < 5; ++j) {
        EXPECT_EQ(inputs[first + i * 5 + j], static_cast<float>(a[i * 4 * 17 + j * 4]));
        EXPECT_EQ(outputs[first + i * 5 + j], static_cast<float>(u[i * 4 * 17 + j * 4]));
      }
    }
  }
  EXPECT_NEAR(summary.mean, sum / (7 * 17 * 17), 1e-15);
  const Hdf5File file = Hdf5File::open(generation.output);
  EXPECT_EQ(file.dataset("nu").shape(), (std::vector<std::int64_t>{4, 5, 5}));
  EXPECT_EQ(file.dataset("tensor").shape(), (std::vector<std::int64_t>{4, 1, 5, 5}));
  EXPECT_EQ(file.dataset("x-coordinate").read_all<float>(),
            (std::vector<float>{0, 0.25F, 0.5F, 0.75F, 1}));
  EXPECT_EQ(file.attributes("/").number("beta"), 1);
  EXPECT_EQ(file.integer_attribute("seed"), 0);
}

NavierStokesGeneration small_navier_stokes(const std::string& folder) {
  NavierStokesGeneration generation;
  generation.output = folder + "/train.h5";
  generation.test_output = folder + "/test.h5";
  generation.samples = 3;
  generation.test_samples = 1;
  generation.resolution = 16;
  generation.stride = 2;
  generation.step = 0.05;
  generation.time = 2;
  generation.show_progress = false;
  return generation;
}

TEST(Generators, NavierStokesWritesItsSolutions) {
  dist::Session session = dist::Session::start();
  const SharedScratch scratch(session);
  const std::string folder = expect_same_files(
      session, scratch,
      [](dist::Session& ranks, const std::string& to) {
        const auto summary = generate_navier_stokes(ranks, small_navier_stokes(to));
        EXPECT_LT(summary.largest_mean, 1e-12);
      },
      2);
  if (session.rank() != 0) return;
  const Hdf5File file = Hdf5File::open(folder + "/train.h5");
  EXPECT_EQ(file.dataset("tensor").shape(), (std::vector<std::int64_t>{3, 2, 8, 8}));
  EXPECT_EQ(file.dataset("t-coordinate").read_all<float>(), (std::vector<float>{1, 2}));
  const auto series = file.dataset("tensor").read_all<float>();
  const auto initial = file.dataset("initial").read_all<float>();
  VorticitySolver solver(16, 1e-3, 0.05);
  solver.set_force(diagonal_force(16));
  const auto start = periodic_gaussian_field({2.5, 7}, 16, philox_key(0, "data navier-stokes"), 1);
  solver.set_vorticity(start);
  solver.advance(20);
  const auto after = solver.vorticity();
  for (std::size_t i = 0; i < 8; ++i) {
    for (std::size_t j = 0; j < 8; ++j) {
      EXPECT_EQ(initial[64 + i * 8 + j], static_cast<float>(start[2 * i * 16 + 2 * j]));
      EXPECT_EQ(series[2 * 64 + i * 8 + j], static_cast<float>(after[2 * i * 16 + 2 * j]));
    }
  }
}

TEST(Generators, NavierStokesNamesTheSampleThatBlowsUp) {
  dist::Session session = dist::Session::single();
  const SharedScratch scratch(session);
  NavierStokesGeneration generation = small_navier_stokes(scratch.path("."));
  generation.step = 1;
  generation.time = 400;
  generation.alpha = 1.1;
  generation.tau = 200;
  EXPECT_THROW(generate_navier_stokes(session, generation), RefusedError);
  EXPECT_FALSE(fs::exists(generation.output));
  EXPECT_TRUE(fs::is_empty(scratch.path("."))) << "nothing is left of the partial file";
}

SyntheticEra5Generation small_era5(const std::string& folder) {
  SyntheticEra5Generation generation;
  generation.output = folder;
  generation.latitudes = 13;
  generation.longitudes = 24;
  generation.channels = {"t2m", "z500", "q850", "u250"};
  generation.first_year = 2000;
  generation.years = 2;
  generation.test_years = 1;
  generation.frames_a_year = 5;
  generation.show_progress = false;
  return generation;
}

TEST(Generators, SyntheticEra5WritesYearlyFiles) {
  dist::Session session = dist::Session::start();
  const SharedScratch scratch(session);
  const std::string folder = expect_same_files(
      session, scratch,
      [](dist::Session& ranks, const std::string& to) {
        generate_synthetic_era5(ranks, small_era5(to));
      },
      11);
  if (session.rank() != 0) return;
  const Hdf5File file = Hdf5File::open(folder + "/train/2001.h5");
  EXPECT_EQ(file.dataset("fields").shape(), (std::vector<std::int64_t>{5, 4, 13, 24}));
  EXPECT_FALSE(file.has_attribute("trajectory_length"));
  EXPECT_EQ(file.dataset("channel").read_texts(),
            (std::vector<std::string>{"t2m", "z500", "q850", "u250"}));
  const auto times = file.dataset("timestamp").read_all<double>();
  EXPECT_EQ(times[0], 978307200);  // date -u -d 2001-01-01 +%s
  EXPECT_EQ(times[4] - times[0], 4 * 6 * 3600);
  const auto latitudes = file.dataset("lat").read_all<float>();
  EXPECT_EQ(latitudes.front(), 90);
  EXPECT_EQ(latitudes.back(), -90);
  EXPECT_TRUE(fs::exists(folder + "/test/2002.h5"));
  for (const float humidity : std::vector<float>(file.dataset("fields").read_all<float>())) {
    EXPECT_TRUE(std::isfinite(humidity));
  }
}

TEST(Generators, SyntheticEra5ChannelsDoNotDependOnTheOthers) {
  dist::Session session = dist::Session::single();
  const SharedScratch scratch(session);
  generate_synthetic_era5(session, small_era5(scratch.path("four")));
  SyntheticEra5Generation one = small_era5(scratch.path("one"));
  one.channels = {"z500"};
  generate_synthetic_era5(session, one);
  const auto four_fields =
      Hdf5File::open(scratch.path("four/train/2001.h5")).dataset("fields").read_all<float>();
  const auto one_fields =
      Hdf5File::open(scratch.path("one/train/2001.h5")).dataset("fields").read_all<float>();
  for (std::size_t frame = 0; frame < 5; ++frame) {
    for (std::size_t point = 0; point < 312; ++point) {
      EXPECT_EQ(four_fields[(frame * 4 + 1) * 312 + point], one_fields[frame * 312 + point]);
    }
  }
}

FieldDataset open_fields(const std::string& path) {
  FieldQuery query;
  query.path = path;
  return FieldDataset::open(query);
}

TEST(Generators, FilesAreReadAsDatasets) {
  dist::Session session = dist::Session::single();
  const SharedScratch scratch(session);
  fs::create_directories(scratch.path("files"));
  generate_darcy(session, small_darcy(scratch.path("files")));
  const FieldDatasetInfo darcy = open_fields(scratch.path("files/train.h5")).info();
  EXPECT_TRUE(darcy.pairs);
  EXPECT_EQ(darcy.samples, 4);
  EXPECT_EQ(darcy.grid, "box");
  EXPECT_EQ(darcy.input_long_names, std::vector<std::string>{"permeability"});
  EXPECT_EQ(darcy.target_long_names, std::vector<std::string>{"pressure"});

  generate_navier_stokes(session, small_navier_stokes(scratch.path("files")));
  const FieldDatasetInfo flow = open_fields(scratch.path("files/train.h5")).info();
  EXPECT_EQ(flow.samples, 3);  // of two frames each
  EXPECT_EQ(flow.grid, "periodic");
  EXPECT_EQ(flow.target_long_names, std::vector<std::string>{"vorticity"});
  EXPECT_EQ(flow.target_units, std::vector<std::string>{"s-1"});
  EXPECT_EQ(flow.frame_seconds, 1);
  EXPECT_TRUE(flow.in_seconds);

  generate_shallow_water(session, small_shallow_water(scratch.path("sphere")));
  FieldDataset sphere = open_fields(scratch.path("sphere/train"));
  EXPECT_EQ(sphere.info().grid, "legendre-gauss");
  EXPECT_EQ(sphere.info().target_units, (std::vector<std::string>{"m2 s-2", "s-1", "s-1"}));
  EXPECT_FALSE(sphere.info().statistics.empty());
  // Four trajectories of three frames: no window crosses from one to the next.
  ASSERT_EQ(sphere.info().samples, 8);
  std::vector<float> input(864);
  std::vector<float> target(864);
  sphere.read(2, {}, input.data(), target.data());
  const auto values = Hdf5File::open(scratch.path("sphere/train/trajectories.h5"))
                          .dataset("fields")
                          .read_all<float>();
  for (std::size_t index = 0; index < 864; ++index) {
    EXPECT_EQ(input[index], values[3 * 864 + index]);
    EXPECT_EQ(target[index], values[4 * 864 + index]);
  }

  generate_synthetic_era5(session, small_era5(scratch.path("years")));
  const FieldDatasetInfo years = open_fields(scratch.path("years/train")).info();
  EXPECT_EQ(years.grid, "equiangular");
  EXPECT_EQ(years.samples, 8);  // years cut short do not continue each other
  EXPECT_EQ(years.frame_seconds, 6 * 3600);
}

TEST(Generators, WrongValuesAreNamed) {
  dist::Session session = dist::Session::single();
  const SharedScratch scratch(session);
  const auto refuse = [&](const std::string& key, const std::function<void()>& action) {
    try {
      action();
      ADD_FAILURE() << "nothing was refused for " << key;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::Usage);
      EXPECT_NE(std::string(error.what()).find(key), std::string::npos) << error.what();
    }
  };
  refuse("stride", [&] {
    auto generation = small_darcy(scratch.path("."));
    generation.stride = 3;
    generate_darcy(session, generation);
  });
  refuse("step", [&] {
    auto generation = small_navier_stokes(scratch.path("."));
    generation.step = 0.3;
    generate_navier_stokes(session, generation);
  });
  refuse("frame-hours", [&] {
    auto generation = small_shallow_water(scratch.path("a"));
    generation.solver.step = 700;
    generate_shallow_water(session, generation);
  });
  refuse("channels", [&] {
    auto generation = small_era5(scratch.path("b"));
    generation.channels = {"z501"};
    generate_synthetic_era5(session, generation);
  });
}

}  // namespace
}  // namespace garonne::data
