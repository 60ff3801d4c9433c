// Shallow water on the sphere as yearly files: the problem on which spherical Fourier neural
// operators are tried (Bonev et al., "Spherical Fourier neural operators", ICML 2023).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/sphere_grid.hpp"
#include "data/generate/shallow_water_solver.hpp"
#include "dist/session.hpp"

namespace garonne::data {

struct ShallowWaterGeneration {
  std::string output;  // folder
  SphereGridKind grid = SphereGridKind::LegendreGauss;
  std::int64_t latitudes = 64;
  std::int64_t longitudes = 128;
  ShallowWaterOptions solver;
  // "random": every trajectory starts from another random state. "galewsky": the unstable jet, one
  // trajectory.
  std::string initial = "random";
  double mach = 0.2;  // of the random winds
  std::int64_t trajectories = 512;
  std::int64_t test_trajectories = 64;
  std::int64_t trajectory_length = 2;  // frames, the initial state among them
  double frame_hours = 1;
  std::uint64_t seed = 333;
  bool show_progress = true;
};

struct ShallowWaterSummary {
  // Over all trajectories: the largest relative change of the mean geopotential.
  double largest_drift = 0;
  // Of the first trajectory, a frame each.
  std::vector<ShallowWaterDiagnostics> first;
  // Of the channels geopotential, vorticity, divergence over the training frames.
  std::vector<double> means;
  std::vector<double> deviations;
};

// Writes train/trajectories.h5, test/trajectories.h5, data.json and stats into the folder; channels
// geopotential (m²/s²), vorticity and divergence (1/s). Trajectory i of a seed is the same for
// every number of trajectories and ranks; the held-out ones follow the training ones. The scheme
// starts afresh at every frame. Collective; the summary is rank 0's. ConfigError, IoError;
// RefusedError with the trajectory where the scheme becomes unstable.
ShallowWaterSummary generate_shallow_water(dist::Session& session,
                                           const ShallowWaterGeneration& generation);

}  // namespace garonne::data
