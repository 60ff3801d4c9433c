#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <random>
#include <vector>

#include "base/error.hpp"
#include "data/generate/sphere_transform.hpp"

namespace garonne::data {
namespace {

using std::numbers::pi;

std::vector<Complex> random_coefficients(const SphereTransform& transform, unsigned seed) {
  std::mt19937_64 generator(seed);
  std::normal_distribution<double> normal;
  std::vector<Complex> coefficients(static_cast<std::size_t>(transform.coefficients()));
  for (std::int64_t m = 0; m < transform.degrees(); ++m) {
    for (std::int64_t l = m; l < transform.degrees(); ++l) {
      coefficients[transform.index(l, m)] = {normal(generator), m == 0 ? 0 : normal(generator)};
    }
  }
  return coefficients;
}

double largest_difference(const std::vector<Complex>& left, const std::vector<Complex>& right) {
  double largest = 0;
  for (std::size_t index = 0; index < left.size(); ++index) {
    largest = std::max(largest, std::abs(left[index] - right[index]));
  }
  return largest;
}

struct Case {
  SphereGridKind kind;
  std::int64_t latitudes;
  std::int64_t longitudes;
  std::int64_t degrees;
};
constexpr Case cases[] = {{SphereGridKind::LegendreGauss, 32, 64, 32},
                          {SphereGridKind::LegendreGauss, 33, 65, 22},
                          {SphereGridKind::Equiangular, 33, 64, 17},
                          {SphereGridKind::Equiangular, 20, 41, 8},
                          {SphereGridKind::LegendreGauss, 2, 1, 1}};

TEST(SphereTransform, RoundTripGivesTheCoefficients) {
  for (const Case& of : cases) {
    SphereTransform transform(make_sphere_grid(of.kind, of.latitudes, of.longitudes), of.degrees,
                              /*winds=*/false);
    const auto coefficients = random_coefficients(transform, 1);
    std::vector<double> field(static_cast<std::size_t>(transform.points()));
    transform.synthesise(coefficients, field);
    auto back = coefficients;
    transform.analyse(field, back);
    EXPECT_LT(largest_difference(back, coefficients), 5e-13);
    EXPECT_NEAR(transform.mean(field), coefficients[0].real() / std::sqrt(4 * pi), 1e-13);
  }
}

TEST(SphereTransform, KnownFieldsHaveKnownCoefficients) {
  SphereTransform transform(make_sphere_grid(SphereGridKind::LegendreGauss, 16, 32), 8, false);
  std::vector<double> field;
  for (std::int64_t row = 0; row < 16; ++row) {
    const double x = transform.grid().cosines[static_cast<std::size_t>(row)];
    const double sine = transform.grid().sines[static_cast<std::size_t>(row)];
    for (std::int64_t column = 0; column < 32; ++column) {
      const double lambda = 2 * pi * static_cast<double>(column) / 32;
      // 3 Y_1^0 + 2 Re(2i Y_2^1), without the sign of Condon and Shortley.
      field.push_back(3 * std::sqrt(3 / (4 * pi)) * x -
                      4 * std::sqrt(15 / (8 * pi)) * sine * x * std::sin(lambda));
    }
  }
  std::vector<Complex> coefficients(static_cast<std::size_t>(transform.coefficients()));
  transform.analyse(field, coefficients);
  std::vector<Complex> expected(coefficients.size());
  expected[transform.index(1, 0)] = 3;
  expected[transform.index(2, 1)] = {0, 2};
  EXPECT_LT(largest_difference(coefficients, expected), 1e-14);
}

TEST(SphereTransform, WindsHaveTheVorticityAndDivergenceOfTheirPotentials) {
  for (const Case& of : cases) {
    if (of.degrees < 2) continue;
    SphereTransform transform(make_sphere_grid(of.kind, of.latitudes, of.longitudes), of.degrees,
                              /*winds=*/true);
    const auto stream = random_coefficients(transform, 2);
    const auto potential = random_coefficients(transform, 3);
    std::vector<double> u(static_cast<std::size_t>(transform.points()));
    auto v = u;
    transform.synthesise_wind(stream, potential, u, v);
    auto vorticity = stream;
    auto divergence = stream;
    transform.analyse_wind(u, v, vorticity, divergence);
    auto expected_vorticity = stream;
    auto expected_divergence = potential;
    for (std::int64_t m = 0; m < of.degrees; ++m) {
      for (std::int64_t l = m; l < of.degrees; ++l) {
        const double laplacian = -static_cast<double>(l * (l + 1));
        expected_vorticity[transform.index(l, m)] *= laplacian;
        expected_divergence[transform.index(l, m)] *= laplacian;
      }
    }
    // The products of derivatives have twice the degree; what the quadrature still carries is
    // exact.
    if (of.kind == SphereGridKind::LegendreGauss || 2 * of.degrees <= of.latitudes + 1) {
      EXPECT_LT(largest_difference(vorticity, expected_vorticity), 1e-9);
      EXPECT_LT(largest_difference(divergence, expected_divergence), 1e-9);
    }
  }
}

TEST(SphereTransform, SolidRotationIsAWindOfDegreeOne) {
  for (const auto kind : {SphereGridKind::LegendreGauss, SphereGridKind::Equiangular}) {
    SphereTransform transform(make_sphere_grid(kind, 9, 16), 4, /*winds=*/true);
    // u = sin θ: ψ = −cos θ.
    std::vector<Complex> stream(static_cast<std::size_t>(transform.coefficients()));
    const std::vector<Complex> none(stream.size());
    stream[transform.index(1, 0)] = -1 / std::sqrt(3 / (4 * pi));
    std::vector<double> u(static_cast<std::size_t>(transform.points()));
    auto v = u;
    transform.synthesise_wind(stream, none, u, v);
    for (std::size_t index = 0; index < u.size(); ++index) {
      EXPECT_NEAR(u[index], transform.grid().sines[index / 16], 1e-15);
      EXPECT_NEAR(v[index], 0, 1e-15);
    }
  }
}

TEST(SphereTransform, RefusesDegreesThatTheLongitudesDoNotCarry) {
  const SphereGrid grid = make_sphere_grid(SphereGridKind::LegendreGauss, 16, 16);
  EXPECT_NO_THROW(SphereTransform(grid, 8, false));
  EXPECT_THROW(SphereTransform(grid, 9, false), ConfigError);
}

}  // namespace
}  // namespace garonne::data
