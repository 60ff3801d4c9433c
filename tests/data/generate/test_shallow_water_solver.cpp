#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <vector>

#include "base/error.hpp"
#include "data/generate/galewsky_check.hpp"
#include "data/generate/shallow_water_solver.hpp"

namespace garonne::data {
namespace {

using testing::expect_trajectory;

using std::numbers::pi;

TEST(ShallowWaterSolver, MeetsTheGalewskyTable) {
  expect_trajectory(64, 300,
                    {{0, 97920.018711, 1.41928970e7, 4.8146092296e9, 4.15063239e-14, 9.04534e-5,
                      71.4671, 0, 1e-9},
                     {1, 97920.018711, 1.21374861e7, 4.8124043627e9, 3.99003099e-14, 5.91075e-5,
                      58.7364, .58684, 1e-5},
                     {6, 97920.018711, 1.07947576e7, 4.8108785429e9, 3.92556947e-14, 4.54300e-5,
                      51.1676, 2.2900, 1e-4}});
}

TEST(ShallowWaterSolver, ExactConstantsChangeTheEighthDigit) {
  const auto grid = make_sphere_grid(SphereGridKind::LegendreGauss, 64, 128);
  ShallowWaterSolver published(grid, {});
  ShallowWaterSolver exact(grid, {.published_rounding = false});
  const auto of_published = published.diagnose(published.galewsky());
  const auto of_exact = exact.diagnose(exact.galewsky());
  EXPECT_NEAR(of_exact.kinetic_energy / of_published.kinetic_energy, 1, 1e-6);
  EXPECT_NE(of_exact.kinetic_energy, of_published.kinetic_energy);
}

TEST(ShallowWaterSolver, KeepsTheMeanGeopotential) {
  for (const auto kind : {SphereGridKind::LegendreGauss, SphereGridKind::Equiangular}) {
    ShallowWaterSolver solver(make_sphere_grid(kind, 33, 64), {.step = 600});
    for (std::uint64_t sample = 0; sample < 2; ++sample) {
      ShallowWaterState state = solver.random_state(philox_key(5, "test waves"), sample, 0.2);
      const double before = solver.diagnose(state).mean_geopotential;
      solver.advance(state, 100);
      const double after = solver.diagnose(state).mean_geopotential;
      EXPECT_TRUE(std::isfinite(after));
      EXPECT_NEAR(after / before, 1, 1e-11);
    }
  }
}

// Solid rotation in balance: the second test of Williamson and others, "A standard test set for
// numerical approximations to the shallow water equations in spherical geometry", 1992.
TEST(ShallowWaterSolver, BalancedRotationIsSteady) {
  const auto grid = make_sphere_grid(SphereGridKind::LegendreGauss, 32, 64);
  ShallowWaterSolver solver(grid, {.step = 600, .diffusion = false, .published_rounding = false});
  const Planet planet;
  const double fastest = 2 * pi * planet.radius / (12 * 86400);
  const std::size_t coefficients = static_cast<std::size_t>(solver.transform().coefficients());
  ShallowWaterState state{std::vector<Complex>(coefficients), std::vector<Complex>(coefficients),
                          std::vector<Complex>(coefficients)};
  std::vector<double> geopotential;
  for (const double x : grid.cosines) {
    const double value =
        2.94e4 - (planet.radius * planet.rotation * fastest + fastest * fastest / 2) * x * x;
    geopotential.insert(geopotential.end(), 64, value);
  }
  solver.transform().analyse(geopotential, state.geopotential);
  state.vorticity[solver.transform().index(1, 0)] =
      2 * fastest / planet.radius / std::sqrt(3 / (4 * pi));
  solver.advance(state, 720);  // five days
  const auto fields = solver.fields(state);
  const auto wind = solver.wind(state);
  for (std::size_t index = 0; index < geopotential.size(); ++index) {
    EXPECT_NEAR(fields.geopotential[index] / geopotential[index], 1, 1e-11);
    EXPECT_NEAR(wind.eastward[index], fastest * grid.sines[index / 64], 1e-8);
    EXPECT_NEAR(wind.northward[index], 0, 1e-8);
  }
}

TEST(ShallowWaterSolver, RandomStatesHaveTheirVarianceOnEveryGrid) {
  const PhiloxKey key = philox_key(5, "test waves");
  ShallowWaterSolver coarse(make_sphere_grid(SphereGridKind::LegendreGauss, 32, 64), {});
  ShallowWaterSolver fine(make_sphere_grid(SphereGridKind::LegendreGauss, 64, 128), {});
  const Planet planet;
  const double unit = planet.gravity * planet.height_amplitude;
  constexpr int samples = 200;
  double power = 0;
  for (std::uint64_t sample = 0; sample < samples; ++sample) {
    const auto small = coarse.random_state(key, sample, 0.2);
    const auto large = fine.random_state(key, sample, 0.2);
    for (std::int64_t l = 0; l < 11; ++l) {
      for (std::int64_t m = 0; m <= l; ++m) {
        EXPECT_EQ(small.vorticity[coarse.transform().index(l, m)],
                  large.vorticity[fine.transform().index(l, m)]);
      }
    }
    const auto fields = coarse.fields(small);
    std::vector<double> squares;
    for (const double value : fields.geopotential) {
      const double anomaly = (value - planet.gravity * planet.mean_height) / unit;
      squares.push_back(anomaly * anomaly);
    }
    power += coarse.transform().mean(squares);
  }
  // Each degree l < 11 adds (variance of m = 0, ½, and 2 · 1 for each m > 0) / 4π.
  double expected = 0;
  for (int l = 0; l < 11; ++l) expected += (0.5 + 2 * l) / (4 * pi) * 4 * pi / (120 * 121);
  EXPECT_NEAR(power / samples, expected, 5 * expected * std::sqrt(2.0 / 121 / samples) * 2);
}

TEST(ShallowWaterSolver, RefusesAStepThatIsNotPositive) {
  const auto grid = make_sphere_grid(SphereGridKind::LegendreGauss, 8, 16);
  EXPECT_THROW(ShallowWaterSolver(grid, {.step = 0}), ConfigError);
  EXPECT_THROW(ShallowWaterSolver(grid, {.degrees = 9}), ConfigError);
}

}  // namespace
}  // namespace garonne::data
