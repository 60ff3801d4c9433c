#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "base/error.hpp"
#include "data/generate/vorticity_solver.hpp"

namespace garonne::data {
namespace {

using std::numbers::pi;

template <typename Function>
std::vector<double> sample(std::int64_t points, Function function) {
  std::vector<double> field;
  for (std::int64_t i = 0; i < points; ++i) {
    for (std::int64_t j = 0; j < points; ++j) {
      field.push_back(function(static_cast<double>(i) / static_cast<double>(points),
                               static_cast<double>(j) / static_cast<double>(points)));
    }
  }
  return field;
}

double half_mean_square(const std::vector<double>& field) {
  double sum = 0;
  for (const double value : field) sum += value * value;
  return 0.5 * sum / static_cast<double>(field.size());
}

// float64 runs of a separate NumPy program of this scheme, to the digits given; the last digit of
// one of them is rounded the other way.
struct CheckRow {
  std::int64_t points;
  double step;
  double time;
  double enstrophy;
  double energy;
  double largest;
  double corner;
  double inside;  // at [points/4, points/8]
};

void expect_row(const CheckRow& row) {
  VorticitySolver solver(row.points, 1e-3, row.step);
  solver.set_vorticity(sample(row.points, [](double x, double y) {
    return std::cos(2 * pi * x) + std::sin(4 * pi * y) + 0.5 * std::sin(2 * pi * (2 * x - 3 * y));
  }));
  solver.set_force(diagonal_force(row.points));
  solver.advance(std::llround(row.time / row.step));
  const auto vorticity = solver.vorticity();
  const auto velocity = solver.velocity();
  double largest = 0;
  for (const double value : vorticity) largest = std::max(largest, std::abs(value));
  EXPECT_NEAR(half_mean_square(vorticity), row.enstrophy, 6e-9);
  EXPECT_NEAR(half_mean_square(velocity.x) + half_mean_square(velocity.y), row.energy, 5.1e-12);
  EXPECT_NEAR(largest, row.largest, 5.1e-7);
  EXPECT_NEAR(vorticity[0], row.corner, 6e-9);
  const std::int64_t inside = row.points / 4 * row.points + row.points / 8;
  EXPECT_NEAR(vorticity[static_cast<std::size_t>(inside)], row.inside, 6e-9);
}

TEST(VorticitySolver, MeetsTheCheckValues) {
  expect_row({64, 1e-3, 1, .43504329, 7.11194803e-3, 2.073864, .93864016, .12275423});
  expect_row({64, 1e-3, 5, .26565897, 5.74457526e-3, 1.432372, 1.25339544, .63662103});
}

TEST(VorticitySolver, IsSpectrallyAccurate) {
  expect_row({128, 1e-3, 1, .43504329, 7.11194803e-3, 2.073864, .93864016, .12275423});
}

TEST(VorticitySolver, MeetsTheCheckValuesOfTheSmallStep) {
  expect_row({64, 2.5e-4, 5, .26558634, 5.74374719e-3, 1.432591, 1.25369060, .63596536});
}

TEST(VorticitySolver, OneWaveDecaysByTheFactorOfTheScheme) {
  constexpr double step = 0.01;
  constexpr double viscosity = 0.02;
  const auto initial =
      sample(32, [](double x, double y) { return std::sin(2 * pi * (x + 2 * y)); });
  VorticitySolver solver(32, viscosity, step);
  solver.set_vorticity(initial);
  solver.advance(50);
  const double rate = 0.5 * step * viscosity * 4 * pi * pi * 5;
  const double factor = std::pow((1 - rate) / (1 + rate), 50);
  const auto vorticity = solver.vorticity();
  for (std::size_t index = 0; index < vorticity.size(); ++index) {
    EXPECT_NEAR(vorticity[index], factor * initial[index], 1e-14);
  }
}

TEST(VorticitySolver, VelocityHasTheVorticityAndNoDivergence) {
  VorticitySolver solver(16, 1.0, 1.0);
  solver.set_vorticity(
      sample(16, [](double x, double y) { return std::cos(2 * pi * x) + std::sin(4 * pi * y); }));
  const auto velocity = solver.velocity();
  // ψ = cos 2πx / 4π² + sin 4πy / 16π², u = ψ_y, v = −ψ_x.
  const auto u = sample(16, [](double, double y) { return std::cos(4 * pi * y) / (4 * pi); });
  const auto v = sample(16, [](double x, double) { return std::sin(2 * pi * x) / (2 * pi); });
  for (std::size_t index = 0; index < u.size(); ++index) {
    EXPECT_NEAR(velocity.x[index], u[index], 1e-15);
    EXPECT_NEAR(velocity.y[index], v[index], 1e-15);
  }
}

TEST(VorticitySolver, RefusesWhatItCannotDo) {
  EXPECT_THROW(VorticitySolver(7, 1e-3, 1e-3), ConfigError);
  EXPECT_THROW(VorticitySolver(8, 0, 1e-3), ConfigError);
  EXPECT_THROW(VorticitySolver(8, 1e-3, -1), ConfigError);
}

}  // namespace
}  // namespace garonne::data
