#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.hpp"
#include "data/generate/darcy_solver.hpp"
#include "data/generate/gaussian_field.hpp"

namespace garonne::data {
namespace {

std::vector<double> threshold(std::int64_t points, std::uint64_t sample) {
  auto a = neumann_gaussian_field({2, 3}, points, philox_key(1, "test darcy"), sample);
  for (double& value : a) value = value >= 0 ? 12 : 3;
  return a;
}

TEST(DarcySolver, UniformCoefficientHasItsMaximum) {
  const auto u = DarcySolver(141).solve(std::vector<double>(141 * 141, 1.0), 1.0);
  EXPECT_NEAR(*std::max_element(u.begin(), u.end()), 0.0736684, 5e-8);
}

TEST(DarcySolver, SolutionSatisfiesEveryEquation) {
  constexpr std::int64_t points = 61;
  DarcySolver solver(points);
  for (std::uint64_t sample = 0; sample < 3; ++sample) {
    const auto a = threshold(points, sample);
    const auto u = solver.solve(a, 1.0);
    const double h = 1.0 / (points - 1);
    const auto at = [&](const std::vector<double>& field, std::int64_t i, std::int64_t j) {
      return field[static_cast<std::size_t>(i * points + j)];
    };
    double residual = 0;
    for (std::int64_t i = 0; i < points; ++i) {
      for (std::int64_t j = 0; j < points; ++j) {
        if (i == 0 || j == 0 || i == points - 1 || j == points - 1) {
          EXPECT_EQ(at(u, i, j), 0);
          continue;
        }
        const auto flux = [&](std::int64_t k, std::int64_t l) {
          return 0.5 * (at(a, i, j) + at(a, k, l)) * (at(u, i, j) - at(u, k, l));
        };
        const double left = flux(i - 1, j) + flux(i + 1, j) + flux(i, j - 1) + flux(i, j + 1);
        residual = std::max(residual, std::abs(left / (h * h) - 1));
      }
    }
    EXPECT_LT(residual, 1e-10);
  }
}

TEST(DarcySolver, MirroredProblemHasMirroredSolution) {
  constexpr std::size_t points = 33;
  DarcySolver solver(points);
  const auto a = threshold(points, 9);
  std::vector<double> transposed(a.size());
  std::vector<double> flipped(a.size());
  for (std::size_t i = 0; i < points; ++i) {
    for (std::size_t j = 0; j < points; ++j) {
      transposed[j * points + i] = a[i * points + j];
      flipped[(points - 1 - i) * points + j] = a[i * points + j];
    }
  }
  const auto u = solver.solve(a, 1.0);
  const auto of_transposed = solver.solve(transposed, 1.0);
  const auto of_flipped = solver.solve(flipped, 1.0);
  for (std::size_t i = 0; i < points; ++i) {
    for (std::size_t j = 0; j < points; ++j) {
      EXPECT_NEAR(u[i * points + j], of_transposed[j * points + i], 1e-15);
      EXPECT_NEAR(u[i * points + j], of_flipped[(points - 1 - i) * points + j], 1e-15);
    }
  }
}

TEST(DarcySolver, ConvergesWithTheSecondOrder) {
  const auto middle = [](std::int64_t points) {
    std::vector<double> a;
    for (std::int64_t i = 0; i < points; ++i) {
      for (std::int64_t j = 0; j < points; ++j) {
        const double x = static_cast<double>(i) / static_cast<double>(points - 1);
        const double y = static_cast<double>(j) / static_cast<double>(points - 1);
        a.push_back(2 + std::sin(5 * x) * std::cos(3 * y + x));
      }
    }
    const auto u = DarcySolver(points).solve(a, 1.0);
    return u[static_cast<std::size_t>(points / 2 * points + points / 2)];
  };
  const double coarse = middle(17);
  const double fine = middle(33);
  const double finer = middle(65);
  EXPECT_NEAR((coarse - fine) / (fine - finer), 4, 0.1);
}

TEST(DarcySolver, RefusesWhatIsNotAFlow) {
  EXPECT_THROW(DarcySolver(2), ConfigError);
  EXPECT_THROW(DarcySolver(5).solve(std::vector<double>(25, 0.0), 1.0), RefusedError);
}

}  // namespace
}  // namespace garonne::data
