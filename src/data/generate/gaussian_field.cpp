#include "data/generate/gaussian_field.hpp"

#include <cmath>
#include <cstdlib>
#include <numbers>

#include "data/generate/fourier.hpp"
#include "data/generate/normal_numbers.hpp"

namespace garonne::data {
namespace {

using std::numbers::pi;

}  // namespace

std::vector<double> neumann_gaussian_field(const GaussianFieldShape& shape, std::int64_t points,
                                           PhiloxKey key, std::uint64_t sample) {
  std::vector<double> field(static_cast<std::size_t>(points * points));
  // Coefficient (k₁, k₂) is number k₁ · points + k₂ of the sample.
  for (std::size_t index = 0; index < field.size(); index += 2) {
    const auto [first, second] = normal_pair(key, 0, sample, index / 2);
    field[index] = first;
    if (index + 1 < field.size()) field[index + 1] = second;
  }
  // The orthonormal transform divides by `points` what the series does not.
  const double scale = static_cast<double>(points) * std::pow(shape.tau, shape.alpha - 1);
  for (std::int64_t i = 0; i < points; ++i) {
    for (std::int64_t j = 0; j < points; ++j) {
      const double eigenvalue =
          pi * pi * static_cast<double>(i * i + j * j) + shape.tau * shape.tau;
      field[static_cast<std::size_t>(i * points + j)] *=
          scale * std::pow(eigenvalue, -shape.alpha / 2);
    }
  }
  field[0] = 0;
  inverse_cosine_plane(points, points, field);
  return field;
}

std::vector<double> periodic_gaussian_field(const GaussianFieldShape& shape, std::int64_t points,
                                            PhiloxKey key, std::uint64_t sample) {
  const std::int64_t columns = points / 2 + 1;
  const std::int64_t largest = (points - 1) / 2;
  const double deviation = std::pow(shape.tau, shape.alpha - 1);
  std::vector<Complex> spectrum(static_cast<std::size_t>(points * columns));
  for (std::int64_t row = 0; row < points; ++row) {
    const std::int64_t i = row <= points / 2 ? row : row - points;
    for (std::int64_t j = 0; j <= largest; ++j) {
      // One number for a wave and its conjugate: of column 0, the upper half.
      if (std::abs(i) > largest || (j == 0 && i <= 0)) continue;
      const double eigenvalue =
          4 * pi * pi * static_cast<double>(i * i + j * j) + shape.tau * shape.tau;
      // A wave and its conjugate have the variance of two: half of it real, half imaginary.
      const double each = deviation * std::pow(eigenvalue, -shape.alpha / 2) * std::sqrt(0.5) *
                          static_cast<double>(points * points);
      // Numbered by wave, not by place, so that a finer grid samples the same field.
      // Numbered by wave, not by place, so that a finer grid samples the same field.
      const auto wave = static_cast<std::uint64_t>(j) << 20 |
                        static_cast<std::uint64_t>(i >= 0 ? 2 * i : -2 * i - 1);
      const auto [real, imaginary] = normal_pair(key, 0, sample, wave);
      spectrum[static_cast<std::size_t>(row * columns + j)] = {each * real, each * imaginary};
      if (j == 0) {
        spectrum[static_cast<std::size_t>((points - row) * columns)] = {each * real,
                                                                        -each * imaginary};
      }
    }
  }
  std::vector<double> field(static_cast<std::size_t>(points * points));
  inverse_real_plane(1, points, points, spectrum, field);
  return field;
}

}  // namespace garonne::data
