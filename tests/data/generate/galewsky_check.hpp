// The unstable jet of Galewsky beside the check values of the published solver.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "data/generate/shallow_water_solver.hpp"

namespace garonne::data::testing {

// Runs of the published solver in complex128 on the Legendre-Gauss grid, its scheme started afresh
// every 24 hours; a value is given to the digits written.
struct CheckRow {
  int day;
  double mean_geopotential;
  double kinetic_energy;
  double total_energy;
  double potential_enstrophy;
  double largest_vorticity;
  double largest_eastward;
  double largest_northward;
  double northward_digit;
};

inline void expect_trajectory(std::int64_t latitudes, double step,
                              const std::vector<CheckRow>& rows) {
  const auto grid = make_sphere_grid(SphereGridKind::LegendreGauss, latitudes, 2 * latitudes);
  ShallowWaterSolver solver(grid, {.step = step});
  EXPECT_EQ(solver.transform().degrees(), (latitudes + 2) / 3);
  ShallowWaterState state = solver.galewsky();
  int day = 0;
  for (const CheckRow& row : rows) {
    for (; day < row.day; ++day) solver.advance(state, std::llround(86400 / step));
    const auto found = solver.diagnose(state);
    SCOPED_TRACE(row.day);
    EXPECT_NEAR(found.mean_geopotential, row.mean_geopotential, 0.6e-6);
    EXPECT_NEAR(found.kinetic_energy, row.kinetic_energy, 0.6e-1);
    EXPECT_NEAR(found.total_energy, row.total_energy, 0.6e-1);
    EXPECT_NEAR(found.potential_enstrophy, row.potential_enstrophy, 0.6e-22);
    EXPECT_NEAR(found.largest_vorticity, row.largest_vorticity,
                row.largest_vorticity > 1e-4 ? 0.6e-9 : 0.6e-10);
    EXPECT_NEAR(found.largest_eastward, row.largest_eastward, 0.6e-4);
    EXPECT_NEAR(found.largest_northward, row.largest_northward, 0.6 * row.northward_digit);
  }
}

}  // namespace garonne::data::testing
