#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <random>
#include <vector>

#include "data/generate/fourier.hpp"

namespace garonne::data {
namespace {

using std::numbers::pi;

std::vector<double> random_values(std::int64_t count, unsigned seed) {
  std::mt19937_64 generator(seed);
  std::normal_distribution<double> normal;
  std::vector<double> values(static_cast<std::size_t>(count));
  for (double& value : values) value = normal(generator);
  return values;
}

struct Plane {
  std::int64_t rows;
  std::int64_t columns;
};
constexpr Plane planes[] = {{1, 1}, {4, 6}, {5, 7}, {8, 1}, {3, 16}};

TEST(Fourier, PlaneIsTheSumOfItsDefinition) {
  for (const auto [rows, columns] : planes) {
    constexpr std::int64_t fields = 2;
    const std::int64_t half = columns / 2 + 1;
    const auto values = random_values(fields * rows * columns, 1);
    std::vector<Complex> spectrum(static_cast<std::size_t>(fields * rows * half));
    forward_real_plane(fields, rows, columns, values, spectrum);
    for (std::int64_t field = 0; field < fields; ++field) {
      for (std::int64_t k = 0; k < rows; ++k) {
        for (std::int64_t l = 0; l < half; ++l) {
          Complex sum = 0;
          for (std::int64_t i = 0; i < rows; ++i) {
            for (std::int64_t j = 0; j < columns; ++j) {
              const double turn = static_cast<double>(k * i) / static_cast<double>(rows) +
                                  static_cast<double>(l * j) / static_cast<double>(columns);
              sum += values[static_cast<std::size_t>((field * rows + i) * columns + j)] *
                     std::polar(1.0, -2 * pi * turn);
            }
          }
          const Complex fast = spectrum[static_cast<std::size_t>((field * rows + k) * half + l)];
          EXPECT_LT(std::abs(fast - sum), 1e-12) << rows << "×" << columns;
        }
      }
    }
    std::vector<double> back(values.size());
    inverse_real_plane(fields, rows, columns, spectrum, back);
    for (std::size_t index = 0; index < values.size(); ++index) {
      EXPECT_NEAR(back[index], values[index], 1e-13);
    }
  }
}

TEST(Fourier, RowsAreTransformedAlone) {
  for (const auto [rows, columns] : planes) {
    const std::int64_t half = columns / 2 + 1;
    const auto values = random_values(rows * columns, 2);
    std::vector<Complex> spectrum(static_cast<std::size_t>(rows * half));
    forward_real_rows(rows, columns, values, spectrum);
    std::vector<double> back(values.size());
    synthesise_real_rows(rows, columns, spectrum, back);
    for (std::int64_t row = 0; row < rows; ++row) {
      std::vector<Complex> alone(static_cast<std::size_t>(half));
      forward_real_plane(1, 1, columns,
                         std::span(values).subspan(static_cast<std::size_t>(row * columns),
                                                   static_cast<std::size_t>(columns)),
                         alone);
      for (std::int64_t l = 0; l < half; ++l) {
        EXPECT_LT(std::abs(alone[static_cast<std::size_t>(l)] -
                           spectrum[static_cast<std::size_t>(row * half + l)]),
                  1e-13);
      }
    }
    for (std::size_t index = 0; index < values.size(); ++index) {
      EXPECT_NEAR(back[index], values[index] * static_cast<double>(columns), 1e-12);
    }
  }
}

TEST(Fourier, CosinePlaneIsTheSumOfItsDefinition) {
  for (const auto [rows, columns] : planes) {
    const auto coefficients = random_values(rows * columns, 3);
    std::vector<double> field = coefficients;
    inverse_cosine_plane(rows, columns, field);
    const auto basis = [](std::int64_t k, std::int64_t i, std::int64_t count) {
      const double norm = std::sqrt((k == 0 ? 1.0 : 2.0) / static_cast<double>(count));
      return norm * std::cos(pi * static_cast<double>(k) * (static_cast<double>(i) + 0.5) /
                             static_cast<double>(count));
    };
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = 0; j < columns; ++j) {
        double sum = 0;
        for (std::int64_t k = 0; k < rows; ++k) {
          for (std::int64_t l = 0; l < columns; ++l) {
            sum += coefficients[static_cast<std::size_t>(k * columns + l)] * basis(k, i, rows) *
                   basis(l, j, columns);
          }
        }
        EXPECT_NEAR(field[static_cast<std::size_t>(i * columns + j)], sum, 1e-12);
      }
    }
  }
}

}  // namespace
}  // namespace garonne::data
