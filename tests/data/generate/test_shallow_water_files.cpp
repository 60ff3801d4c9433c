// Shallow water under one to three ranks: its files and their statistics, and that they do not
// depend on the ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "data/generate/generate_shallow_water.hpp"
#include "data/generate/generator_ranks.hpp"
#include "data/hdf5/hdf5.hpp"
#include "data/statistics/npy.hpp"
#include "dist/session.hpp"

namespace garonne::data {
namespace {

namespace fs = std::filesystem;
using test::expect_same_files;
using test::SharedScratch;
using test::small_shallow_water;

// Of small_shallow_water().
constexpr std::size_t frames = 12;
constexpr std::size_t frames_a_trajectory = 3;
constexpr std::size_t points = 288;
constexpr std::size_t frame_values = 3 * points;

void expect_description(const Hdf5File& file) {
  EXPECT_EQ(file.dataset("fields").shape(), (std::vector<std::int64_t>{12, 3, 12, 24}));
  EXPECT_EQ(file.integer_attribute("trajectory_length"), 3);
  EXPECT_EQ(file.dimension_scales("fields"),
            (std::vector<std::string>{"timestamp", "channel", "lat", "lon"}));
  EXPECT_EQ(file.dataset("channel").read_texts(),
            (std::vector<std::string>{"geopotential", "vorticity", "divergence"}));
  const auto times = file.dataset("timestamp").read_all<double>();
  for (std::size_t frame = 0; frame < frames; ++frame) {
    EXPECT_EQ(times[frame], 283996800 + 3600 * static_cast<double>(frame));
  }
  const auto latitudes = file.dataset("lat").read_all<float>();
  EXPECT_GT(latitudes[0], latitudes[1]);
  EXPECT_EQ(file.dataset("valid_data").read_all<std::int32_t>(), std::vector<std::int32_t>(36, 1));
}

// The second frame of the third trajectory.
void expect_solution(const std::vector<float>& values, const SphereGrid& grid,
                     const ShallowWaterOptions& options) {
  ShallowWaterSolver solver(grid, options);
  auto state = solver.random_state(philox_key(333, "data shallow-water"), 2, 0.2);
  solver.advance(state, 6);
  const auto fields = solver.fields(state);
  for (std::size_t point = 0; point < points; ++point) {
    EXPECT_EQ(values[7 * frame_values + point], static_cast<float>(fields.geopotential[point]));
    EXPECT_EQ(values[7 * frame_values + 2 * points + point],
              static_cast<float>(fields.divergence[point]));
  }
}

// Statistics, the slow way.
class SlowStatistics {
 public:
  SlowStatistics(const std::vector<float>& values, const SphereGrid& grid)
      : values_(values), grid_(grid) {}

  double mean(std::size_t channel) const {
    return average(channel, false, [](double now, double) { return now; });
  }
  double change(std::size_t channel) const {
    return average(channel, true, [](double now, double before) { return now - before; });
  }
  double deviation(std::size_t channel) const {
    const double of = mean(channel);
    return std::sqrt(
        average(channel, false, [&](double now, double) { return (now - of) * (now - of); }));
  }
  double deviation_of_change(std::size_t channel) const {
    const double of = change(channel);
    return std::sqrt(average(channel, true, [&](double now, double before) {
      return (now - before - of) * (now - before - of);
    }));
  }

 private:
  // Weighted mean over frames f (not the first of a trajectory where `step`) of what(value,
  // before).
  double average(std::size_t channel, bool step,
                 const std::function<double(double, double)>& what) const {
    double sum = 0;
    double weights = 0;
    for (std::size_t frame = 0; frame < frames; ++frame) {
      if (step && frame % frames_a_trajectory == 0) continue;
      for (std::size_t point = 0; point < points; ++point) {
        const double weight = grid_.weights[point / 24];
        const double now = values_[frame * frame_values + channel * points + point];
        const double before =
            step ? values_[(frame - 1) * frame_values + channel * points + point] : 0;
        sum += weight * what(now, before);
        weights += weight;
      }
    }
    return sum / weights;
  }

  const std::vector<float>& values_;
  const SphereGrid& grid_;
};

void expect_deviations(const std::string& file,
                       const std::function<double(std::size_t)>& expected) {
  const auto array = read_npy<double>(file);
  ASSERT_EQ(array.shape, (std::vector<std::int64_t>{1, 3, 1, 1}));
  for (std::size_t channel = 0; channel < 3; ++channel) {
    const double value = expected(channel);
    EXPECT_NEAR(array.values[channel], value, 1e-6 * std::abs(value)) << file;
  }
}

// `folder` is that of the statistics.
void expect_statistics(const std::string& folder, const std::vector<float>& values,
                       const SphereGrid& grid) {
  const SlowStatistics slow(values, grid);
  expect_deviations(folder + "/global_stds.npy",
                    [&](std::size_t channel) { return slow.deviation(channel); });
  expect_deviations(folder + "/time_diff_stds_dt1.npy",
                    [&](std::size_t channel) { return slow.deviation_of_change(channel); });
  EXPECT_NEAR(read_npy<double>(folder + "/global_means.npy").values[0], slow.mean(0), 1e-2);
  EXPECT_NEAR(read_npy<double>(folder + "/time_diff_means_dt1.npy").values[0], slow.change(0),
              1e-2);
  float least = values[0];
  float largest = values[0];
  double time_sum = 0;
  for (std::size_t frame = 0; frame < frames; ++frame) {
    for (std::size_t point = 0; point < points; ++point) {
      least = std::min(least, values[frame * frame_values + point]);
      largest = std::max(largest, values[frame * frame_values + point]);
    }
    time_sum += static_cast<double>(values[frame * frame_values + points + 17]);
  }
  EXPECT_EQ(read_npy<float>(folder + "/mins.npy").values[0], least);
  EXPECT_EQ(read_npy<float>(folder + "/maxs.npy").values[0], largest);
  const auto time_means = read_npy<float>(folder + "/time_means.npy");
  EXPECT_EQ(time_means.shape, (std::vector<std::int64_t>{1, 3, 12, 24}));
  EXPECT_EQ(time_means.values[points + 17], static_cast<float>(time_sum / 12));
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
  expect_description(file);
  const auto values = file.dataset("fields").read_all<float>();
  const ShallowWaterGeneration generation = small_shallow_water(folder);
  const SphereGrid grid = make_sphere_grid(generation.grid, 12, 24);
  expect_solution(values, grid, generation.solver);
  expect_statistics(folder + "/stats", values, grid);
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

}  // namespace
}  // namespace garonne::data
