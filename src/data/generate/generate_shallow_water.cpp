#include "data/generate/generate_shallow_water.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>

#include "base/error.hpp"
#include "data/disk_space.hpp"
#include "data/fields/yearly_file.hpp"
#include "data/generate/shared_work.hpp"
#include "data/statistics/frame_statistics.hpp"

namespace garonne::data {
namespace {

constexpr std::int64_t channels = 3;
constexpr std::size_t diagnostics_count = 7;
// 1 January 1979, 0:00 UTC: where the years of such files usually begin.
constexpr double first_time = 283996800;

void check(const ShallowWaterGeneration& generation) {
  const auto refuse = [](const char* key, auto value, const char* reason) {
    throw ConfigError(key, fmt::format("{}", value), reason);
  };
  if (generation.initial != "random" && generation.initial != "galewsky") {
    refuse("initial", generation.initial, "is neither random nor galewsky");
  }
  if (generation.trajectories < 1) {
    refuse("trajectories", generation.trajectories, "must be at least 1");
  }
  if (generation.test_trajectories < 0) {
    refuse("test-trajectories", generation.test_trajectories, "is negative");
  }
  if (generation.initial == "galewsky" &&
      generation.trajectories + generation.test_trajectories != 1) {
    refuse("trajectories", generation.trajectories + generation.test_trajectories,
           "must be 1 with initial = galewsky, training and held-out ones together: all would be "
           "the same");
  }
  if (generation.trajectory_length < 2) {
    refuse("trajectory-length", generation.trajectory_length, "must be at least 2");
  }
  if (!(generation.mach > 0)) refuse("mach", generation.mach, "must be positive");
  const double steps = generation.frame_hours * 3600 / generation.solver.step;
  if (!(steps >= 1) || std::abs(steps - std::round(steps)) > 1e-9 * steps) {
    refuse("frame-hours", generation.frame_hours, "must be a whole number of steps");
  }
}

void append(const std::vector<double>& field, std::vector<float>& values) {
  for (const double value : field) values.push_back(static_cast<float>(value));
}

// All frames of a trajectory; facts are their diagnostics.
MadeSample make(ShallowWaterSolver& solver, const ShallowWaterGeneration& generation,
                std::int64_t trajectory) {
  const std::int64_t steps = std::llround(generation.frame_hours * 3600 / generation.solver.step);
  ShallowWaterState state =
      generation.initial == "galewsky"
          ? solver.galewsky()
          : solver.random_state(philox_key(generation.seed, "data shallow-water"),
                                static_cast<std::uint64_t>(trajectory), generation.mach);
  MadeSample made;
  for (std::int64_t frame = 0; frame < generation.trajectory_length; ++frame) {
    if (frame > 0) solver.advance(state, steps);
    const auto fields = solver.fields(state);
    append(fields.geopotential, made.values);
    append(fields.vorticity, made.values);
    append(fields.divergence, made.values);
    const auto found = solver.diagnose(state);
    made.facts.insert(made.facts.end(),
                      {found.mean_geopotential, found.kinetic_energy, found.total_energy,
                       found.potential_enstrophy, found.largest_vorticity, found.largest_eastward,
                       found.largest_northward});
    if (!std::isfinite(found.total_energy + found.potential_enstrophy)) {
      throw RefusedError(fmt::format(
          "shallow-water: trajectory {} is not finite after {} h; a step "
          "below {} s is needed",
          trajectory, static_cast<double>(frame) * generation.frame_hours, generation.solver.step));
    }
  }
  return made;
}

ShallowWaterDiagnostics diagnostics_of(std::span<const double> facts) {
  return {facts[0], facts[1], facts[2], facts[3], facts[4], facts[5], facts[6]};
}

YearlyFields describe(const ShallowWaterGeneration& generation, const SphereGrid& grid,
                      std::int64_t degrees) {
  YearlyFields description;
  description.name = "shallow water on the sphere";
  description.channels = {"geopotential", "vorticity", "divergence"};
  description.grid = grid;
  description.frame_seconds = generation.frame_hours * 3600;
  description.trajectory_length = generation.trajectory_length;
  description.texts = {{"generator", "garonne data shallow-water"},
                       {"initial", generation.initial},
                       {"units", "m2 s-2, s-1, s-1"}};
  const Planet& planet = generation.solver.planet;
  description.numbers = {{"step", generation.solver.step},
                         {"radius", planet.radius},
                         {"rotation", planet.rotation},
                         {"gravity", planet.gravity},
                         {"mean_height", planet.mean_height}};
  description.integers = {{"seed", static_cast<std::int64_t>(generation.seed)},
                          {"degrees", degrees}};
  if (generation.initial == "random") description.numbers["mach"] = generation.mach;
  return description;
}

}  // namespace

ShallowWaterSummary generate_shallow_water(dist::Session& session,
                                           const ShallowWaterGeneration& generation) {
  std::optional<ShallowWaterSolver> solver;
  std::optional<YearlyFields> description;
  std::optional<YearlyFile> training;
  std::optional<YearlyFile> held_out;
  std::optional<FrameStatistics> statistics;
  const std::int64_t length = generation.trajectory_length;
  session.agree([&] {
    check(generation);
    const SphereGrid grid =
        make_sphere_grid(generation.grid, generation.latitudes, generation.longitudes);
    solver.emplace(grid, generation.solver);
    if (session.rank() != 0) return;
    description = describe(generation, grid, solver->transform().degrees());
    make_yearly_folder(generation.output, generation.test_trajectories > 0);
    const std::int64_t frames = generation.trajectories * length;
    const std::int64_t test_frames = generation.test_trajectories * length;
    const std::string path = generation.output + "/train/trajectories.h5";
    check_space(path, yearly_file_bytes(*description, frames + test_frames));
    training.emplace(*description, path, frames, first_time);
    if (test_frames > 0) {
      held_out.emplace(*description, generation.output + "/test/trajectories.h5", test_frames,
                       first_time + static_cast<double>(frames) * description->frame_seconds);
    }
    statistics.emplace(grid, channels);
  });

  ShallowWaterSummary summary;
  make_and_take(
      session, "shallow-water", generation.show_progress,
      generation.trajectories + generation.test_trajectories,
      [&](std::int64_t trajectory) { return make(*solver, generation, trajectory); },
      [&](std::int64_t trajectory, const MadeSample& made) {
        const std::size_t frame_size = made.values.size() / static_cast<std::size_t>(length);
        const bool trains = trajectory < generation.trajectories;
        for (std::int64_t frame = 0; frame < length; ++frame) {
          const auto index = static_cast<std::size_t>(frame);
          const auto values = std::span(made.values).subspan(index * frame_size, frame_size);
          if (trains) {
            training->write_frame(trajectory * length + frame, values);
            statistics->add(values, frame > 0);
          } else {
            held_out->write_frame((trajectory - generation.trajectories) * length + frame, values);
          }
          const auto facts =
              std::span(made.facts).subspan(index * diagnostics_count, diagnostics_count);
          summary.largest_drift =
              std::max(summary.largest_drift, std::abs(facts[0] / made.facts[0] - 1));
          if (trajectory == 0) summary.first.push_back(diagnostics_of(facts));
        }
      });

  session.agree([&] {
    if (session.rank() != 0) return;
    statistics->write(generation.output + "/stats");
    write_yearly_metadata(*description, generation.output);
    training->publish();
    if (held_out) held_out->publish();
    for (std::int64_t channel = 0; channel < channels; ++channel) {
      summary.means.push_back(statistics->mean(channel));
      summary.deviations.push_back(statistics->deviation(channel));
    }
  });
  return summary;
}

}  // namespace garonne::data
