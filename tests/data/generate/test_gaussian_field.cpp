#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <vector>

#include "data/generate/gaussian_field.hpp"
#include "data/generate/normal_numbers.hpp"

namespace garonne::data {
namespace {

using std::numbers::pi;
constexpr PhiloxKey key = philox_key(7, "test field");

double mean_square(const std::vector<double>& field) {
  double sum = 0;
  for (const double value : field) sum += value * value;
  return sum / static_cast<double>(field.size());
}

TEST(NormalNumbers, AreNormalAndIndependent) {
  constexpr int pairs = 100000;
  double mean = 0;
  double square = 0;
  double fourth = 0;
  double product = 0;
  for (std::uint64_t pair = 0; pair < pairs; ++pair) {
    const auto [first, second] = normal_pair(key, 1, 2, pair);
    mean += first + second;
    square += first * first + second * second;
    fourth += std::pow(first, 4) + std::pow(second, 4);
    product += first * second;
  }
  // Five standard deviations of each mean.
  EXPECT_NEAR(mean / (2 * pairs), 0, 5 / std::sqrt(2.0 * pairs));
  EXPECT_NEAR(square / (2 * pairs), 1, 5 * std::sqrt(2.0) / std::sqrt(2.0 * pairs));
  EXPECT_NEAR(fourth / (2 * pairs), 3, 5 * std::sqrt(96.0) / std::sqrt(2.0 * pairs));
  EXPECT_NEAR(product / pairs, 0, 5 / std::sqrt(1.0 * pairs));
}

// The mean over the square of the variance at a point.
double neumann_variance(int points) {
  double sum = 0;
  for (int i = 0; i < points; ++i) {
    for (int j = 0; j < points; ++j) {
      if (i + j > 0) sum += 9 / std::pow(pi * pi * (i * i + j * j) + 9, 2);
    }
  }
  return sum;
}

TEST(GaussianField, NeumannVarianceIsThatOfTheSeries) {
  EXPECT_NEAR(neumann_variance(141), 0.085310, 5e-7);
  constexpr int points = 24;
  constexpr int samples = 2000;
  double sum = 0;
  for (std::uint64_t sample = 0; sample < samples; ++sample) {
    const auto field = neumann_gaussian_field({2, 3}, points, key, sample);
    double mean = 0;
    for (const double value : field) mean += value;
    EXPECT_NEAR(mean, 0, 1e-11);
    sum += mean_square(field);
  }
  // Of a sample's mean square the standard deviation is below its mean.
  const double expected = neumann_variance(points);
  EXPECT_NEAR(sum / samples, expected, 4 * expected / std::sqrt(samples));
}

TEST(GaussianField, NeumannFieldIsTheSeries) {
  constexpr int points = 6;
  const auto field = neumann_gaussian_field({2, 3}, points, key, 5);
  for (int i = 0; i < points; ++i) {
    for (int j = 0; j < points; ++j) {
      double sum = 0;
      for (int k = 0; k < points; ++k) {
        for (int l = 0; l < points; ++l) {
          if (k + l == 0) continue;
          const int index = k * points + l;
          const auto pair = normal_pair(key, 0, 5, static_cast<std::uint64_t>(index / 2));
          const double number = index % 2 == 0 ? pair.first : pair.second;
          const auto wave = [&](int order, int place) {
            return (order == 0 ? 1.0 : std::sqrt(2.0)) *
                   std::cos(pi * order * (place + 0.5) / points);
          };
          sum += number * 3 / (pi * pi * (k * k + l * l) + 9) * wave(k, i) * wave(l, j);
        }
      }
      EXPECT_NEAR(field[static_cast<std::size_t>(i * points + j)], sum, 1e-13);
    }
  }
}

TEST(GaussianField, PeriodicVarianceIsThatOfTheSeries) {
  constexpr int points = 16;
  constexpr int samples = 2000;
  double expected = 0;
  for (int i = -7; i <= 7; ++i) {
    for (int j = -7; j <= 7; ++j) {
      if (i != 0 || j != 0) {
        expected += std::pow(7, 3) * std::pow(4 * pi * pi * (i * i + j * j) + 49, -2.5);
      }
    }
  }
  double sum = 0;
  for (std::uint64_t sample = 0; sample < samples; ++sample) {
    sum += mean_square(periodic_gaussian_field({2.5, 7}, points, key, sample));
  }
  EXPECT_NEAR(sum / samples, expected, 4 * expected / std::sqrt(samples));
}

TEST(GaussianField, PeriodicFieldDoesNotDependOnItsGrid) {
  const auto coarse = periodic_gaussian_field({40, 7}, 16, key, 3);
  const auto fine = periodic_gaussian_field({40, 7}, 32, key, 3);
  // With this α waves above the coarse grid's are below rounding.
  const double size = std::sqrt(mean_square(coarse));
  for (std::size_t i = 0; i < 16; ++i) {
    for (std::size_t j = 0; j < 16; ++j) {
      EXPECT_NEAR(coarse[i * 16 + j], fine[2 * i * 32 + 2 * j], 1e-10 * size);
    }
  }
}

}  // namespace
}  // namespace garonne::data
