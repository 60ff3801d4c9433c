// Every generator under one to three ranks: what it writes, and that the files do not depend on the
// ranks.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "data/fields/field_dataset.hpp"
#include "data/generate/darcy_solver.hpp"
#include "data/generate/gaussian_field.hpp"
#include "data/generate/generate_darcy.hpp"
#include "data/generate/generate_navier_stokes.hpp"
#include "data/generate/generate_shallow_water.hpp"
#include "data/generate/generate_synthetic_era5.hpp"
#include "data/generate/vorticity_solver.hpp"
#include "data/hdf5/hdf5.hpp"
#include "data/statistics/npy.hpp"
#include "dist/session.hpp"

namespace garonne::data {
namespace {

namespace fs = std::filesystem;

// One folder for all ranks, made by rank 0 and removed at the end.
class SharedScratch {
 public:
  explicit SharedScratch(dist::Session& session) : session_(session) {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    std::string path;
    if (session.rank() == 0) {
      path = (fs::temp_directory_path() / ("garonne_generators_" + std::string(test->name()) + "_" +
                                           std::to_string(::getpid())))
                 .string();
      fs::remove_all(path);
      fs::create_directories(path);
    }
    path_ = session.broadcast(path);
  }
  ~SharedScratch() {
    if (session_.rank() == 0) fs::remove_all(path_);
  }
  std::string path(const std::string& name) const { return path_ + "/" + name; }

 private:
  dist::Session& session_;
  std::string path_;
};

// Hashes of all files below a folder, by their path in it.
std::map<std::string, std::string> hashes(const std::string& folder) {
  std::map<std::string, std::string> found;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) {
      found[fs::relative(entry.path(), folder).string()] = hash_file(entry.path().string());
    }
  }
  return found;
}

// Runs `generate(session, folder)` on all ranks and on one; the same files must come out. Returns
// the folder of the first.
std::string expect_same_files(
    dist::Session& session, const SharedScratch& scratch,
    const std::function<void(dist::Session&, const std::string&)>& generate, std::size_t files) {
  const std::string together = scratch.path("together");
  const std::string alone = scratch.path("alone");
  if (session.rank() == 0) {
    fs::create_directories(together);
    fs::create_directories(alone);
  }
  session.barrier();
  generate(session, together);
  if (session.rank() == 0) {
    dist::Session single = dist::Session::single();
    // HDF5 would write the second at which an object was made.
    std::this_thread::sleep_for(std::chrono::milliseconds(1100));
    generate(single, alone);
    EXPECT_EQ(hashes(together), hashes(alone));
    EXPECT_EQ(hashes(together).size(), files);
  }
  return together;
}

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

ShallowWaterGeneration small_shallow_water(const std::string& folder) {
  ShallowWaterGeneration generation;
  generation.output = folder;
  generation.latitudes = 12;
  generation.longitudes = 24;
  generation.trajectories = 4;
  generation.test_trajectories = 1;
  generation.trajectory_length = 3;
  generation.solver.step = 600;
  generation.show_progress = false;
  return generation;
}

TEST(Generators, ShallowWaterWritesYearlyFiles) {
  dist::Session session = dist::Session::start();
  const SharedScratch scratch(session);
  ShallowWaterSummary summary;
  const std::string folder = expect_same_files(
      session, scratch,
      [&](dist::Session& ranks, const std::string& to) {
        summary = generate_shallow_water(ranks, small_shallow_water(to));
      },
      10);
  if (session.rank() != 0) return;
  EXPECT_LT(summary.largest_drift, 1e-11);
  const Hdf5File file = Hdf5File::open(folder + "/train/trajectories.h5");
  EXPECT_EQ(file.dataset("fields").shape(), (std::vector<std::int64_t>{12, 3, 12, 24}));
  EXPECT_EQ(file.integer_attribute("trajectory_length"), 3);
  EXPECT_EQ(file.dimension_scales("fields"),
            (std::vector<std::string>{"timestamp", "channel", "lat", "lon"}));
  EXPECT_EQ(file.dataset("channel").read_texts(),
            (std::vector<std::string>{"geopotential", "vorticity", "divergence"}));
  const auto times = file.dataset("timestamp").read_all<double>();
  for (std::size_t frame = 0; frame < 12; ++frame) {
    EXPECT_EQ(times[frame], 283996800 + 3600 * static_cast<double>(frame));
  }
  const auto latitudes = file.dataset("lat").read_all<float>();
  EXPECT_GT(latitudes[0], latitudes[1]);
  EXPECT_EQ(file.dataset("valid_data").read_all<std::int32_t>(), std::vector<std::int32_t>(36, 1));

  // The second frame of the third trajectory.
  ShallowWaterGeneration generation = small_shallow_water(folder);
  const auto grid = make_sphere_grid(generation.grid, 12, 24);
  ShallowWaterSolver solver(grid, generation.solver);
  auto state = solver.random_state(philox_key(333, "data shallow-water"), 2, 0.2);
  solver.advance(state, 6);
  const auto fields = solver.fields(state);
  const auto values = file.dataset("fields").read_all<float>();
  for (std::size_t point = 0; point < 288; ++point) {
    EXPECT_EQ(values[7 * 864 + point], static_cast<float>(fields.geopotential[point]));
    EXPECT_EQ(values[7 * 864 + 576 + point], static_cast<float>(fields.divergence[point]));
  }

  // Statistics, the slow way.
  const auto check = [&](const char* name, const std::function<double(std::size_t)>& expected,
                         double tolerance) {
    const auto array = read_npy<double>(folder + "/stats/" + name + ".npy");
    ASSERT_EQ(array.shape, (std::vector<std::int64_t>{1, 3, 1, 1}));
    for (std::size_t channel = 0; channel < 3; ++channel) {
      const double value = expected(channel);
      EXPECT_NEAR(array.values[channel], value, tolerance * std::abs(value)) << name;
    }
  };
  // Weighted mean over frames f (not the first of a trajectory where `step`) of what(value,
  // before).
  const auto average = [&](std::size_t channel, bool step,
                           const std::function<double(double, double)>& what) {
    double sum = 0;
    double weights = 0;
    for (std::size_t frame = 0; frame < 12; ++frame) {
      if (step && frame % 3 == 0) continue;
      for (std::size_t point = 0; point < 288; ++point) {
        const double weight = grid.weights[point / 24];
        const double now = values[frame * 864 + channel * 288 + point];
        const double before = step ? values[(frame - 1) * 864 + channel * 288 + point] : 0;
        sum += weight * what(now, before);
        weights += weight;
      }
    }
    return sum / weights;
  };
  const auto mean = [&](std::size_t channel) {
    return average(channel, false, [](double now, double) { return now; });
  };
  const auto change = [&](std::size_t channel) {
    return average(channel, true, [](double now, double before) { return now - before; });
  };
  check(
      "global_stds",
      [&](std::size_t channel) {
        const double of = mean(channel);
        return std::sqrt(
            average(channel, false, [&](double now, double) { return (now - of) * (now - of); }));
      },
      1e-6);
  check(
      "time_diff_stds_dt1",
      [&](std::size_t channel) {
        const double of = change(channel);
        return std::sqrt(average(channel, true, [&](double now, double before) {
          return (now - before - of) * (now - before - of);
        }));
      },
      1e-6);
  EXPECT_NEAR(read_npy<double>(folder + "/stats/global_means.npy").values[0], mean(0), 1e-2);
  EXPECT_NEAR(read_npy<double>(folder + "/stats/time_diff_means_dt1.npy").values[0], change(0),
              1e-2);
  float least = values[0];
  float largest = values[0];
  double time_sum = 0;
  for (std::size_t frame = 0; frame < 12; ++frame) {
    for (std::size_t point = 0; point < 288; ++point) {
      least = std::min(least, values[frame * 864 + point]);
      largest = std::max(largest, values[frame * 864 + point]);
    }
    time_sum += static_cast<double>(values[frame * 864 + 288 + 17]);
  }
  EXPECT_EQ(read_npy<float>(folder + "/stats/mins.npy").values[0], least);
  EXPECT_EQ(read_npy<float>(folder + "/stats/maxs.npy").values[0], largest);
  const auto time_means = read_npy<float>(folder + "/stats/time_means.npy");
  EXPECT_EQ(time_means.shape, (std::vector<std::int64_t>{1, 3, 12, 24}));
  EXPECT_EQ(time_means.values[288 + 17], static_cast<float>(time_sum / 12));
}

TEST(Generators, ShallowWaterRefusesAFolderWithFields) {
  dist::Session session = dist::Session::single();
  const SharedScratch scratch(session);
  const ShallowWaterGeneration generation = small_shallow_water(scratch.path("fields"));
  generate_shallow_water(session, generation);
  EXPECT_THROW(generate_shallow_water(session, generation), dist::AgreedError);
}

TEST(Generators, ShallowWaterFollowsTheJet) {
  dist::Session session = dist::Session::start();
  const SharedScratch scratch(session);
  ShallowWaterGeneration generation;
  generation.output = scratch.path("jet");
  generation.initial = "galewsky";
  generation.trajectories = 1;
  generation.test_trajectories = 0;
  generation.trajectory_length = 2;
  generation.frame_hours = 24;
  generation.show_progress = false;
  const auto summary = generate_shallow_water(session, generation);
  if (session.rank() != 0) return;
  ASSERT_EQ(summary.first.size(), 2U);
  // The row of day 1 of the table of check values.
  EXPECT_NEAR(summary.first[1].kinetic_energy, 1.21374861e7, 0.6e-1);
  EXPECT_NEAR(summary.first[1].largest_northward, .58684, 0.6e-5);
  EXPECT_FALSE(fs::exists(generation.output + "/test"));
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
