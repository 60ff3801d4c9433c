#include "data/generate/sphere_transform.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numbers>
#include <utility>

#include "base/error.hpp"

namespace garonne::data {
namespace {

// Sums in lanes, so that the compiler may use vectors; the order of the sum is fixed by them.
double dot(const double* left, const double* right, std::size_t count) {
  constexpr std::size_t lanes = 8;
  double sums[lanes] = {};
  std::size_t index = 0;
  for (; index + lanes <= count; index += lanes) {
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      sums[lane] += left[index + lane] * right[index + lane];
    }
  }
  for (; index < count; ++index) sums[0] += left[index] * right[index];
  return ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

void axpy(double factor, std::span<const double> row, std::vector<double>& sum) {
  for (std::size_t k = 0; k < row.size(); ++k) sum[k] += factor * row[k];
}

}  // namespace

void SphereTransform::Half::resize(std::size_t count) {
  for (auto* part : {&even_real, &even_imaginary, &odd_real, &odd_imaginary}) part->resize(count);
}

void SphereTransform::Half::clear() {
  for (auto* part : {&even_real, &even_imaginary, &odd_real, &odd_imaginary}) {
    std::fill(part->begin(), part->end(), 0.0);
  }
}

void SphereTransform::add(std::span<const double> row, bool odd, Complex factor, Half& half) {
  axpy(factor.real(), row, odd ? half.odd_real : half.even_real);
  axpy(factor.imag(), row, odd ? half.odd_imaginary : half.even_imaginary);
}

Complex SphereTransform::product(std::span<const double> row, bool odd, const Half& half) {
  return {dot(row.data(), (odd ? half.odd_real : half.even_real).data(), row.size()),
          dot(row.data(), (odd ? half.odd_imaginary : half.even_imaginary).data(), row.size())};
}

SphereTransform::SphereTransform(SphereGrid grid, std::int64_t degrees, bool winds)
    : grid_(std::move(grid)), degrees_(degrees) {
  if (2 * degrees - 1 > grid_.longitudes) {
    throw ConfigError(
        "degrees", fmt::format("{}", degrees),
        fmt::format("needs at least {} longitudes, not {}", 2 * degrees - 1, grid_.longitudes));
  }
  const auto half = static_cast<std::size_t>((grid_.latitudes + 1) / 2);
  const std::span<const double> cosines = std::span(grid_.cosines).first(half);
  scalar_ = make_legendre_table(degrees, degrees, cosines);
  if (winds) winds_ = make_vector_legendre_table(degrees, degrees, cosines);
  const auto size = static_cast<std::size_t>(grid_.latitudes * (grid_.longitudes / 2 + 1));
  spectrum_.resize(size);
  if (winds) second_spectrum_.resize(size);
  half_.resize(half);
  second_half_.resize(half);
}

void SphereTransform::split(const std::vector<Complex>& spectrum, std::int64_t order,
                            Half& half) const {
  const std::int64_t columns = grid_.longitudes / 2 + 1;
  const double scale = 2 * std::numbers::pi / static_cast<double>(grid_.longitudes);
  for (std::int64_t row = 0; row < (grid_.latitudes + 1) / 2; ++row) {
    const std::int64_t mirrored = grid_.latitudes - 1 - row;
    const auto k = static_cast<std::size_t>(row);
    const double weight = scale * grid_.weights[k];
    const Complex north = weight * spectrum[static_cast<std::size_t>(row * columns + order)];
    const Complex south =
        row == mirrored ? 0.0
                        : weight * spectrum[static_cast<std::size_t>(mirrored * columns + order)];
    const Complex even = north + south;
    // At the equator odd functions are 0, whatever stands here.
    const Complex odd = north - south;
    half.even_real[k] = even.real();
    half.even_imaginary[k] = even.imag();
    half.odd_real[k] = odd.real();
    half.odd_imaginary[k] = odd.imag();
  }
}

void SphereTransform::join(const Half& half, std::int64_t order,
                           std::vector<Complex>& spectrum) const {
  const std::int64_t columns = grid_.longitudes / 2 + 1;
  for (std::int64_t row = 0; row < (grid_.latitudes + 1) / 2; ++row) {
    const std::int64_t mirrored = grid_.latitudes - 1 - row;
    const auto k = static_cast<std::size_t>(row);
    const Complex even(half.even_real[k], half.even_imaginary[k]);
    const Complex odd(half.odd_real[k], half.odd_imaginary[k]);
    spectrum[static_cast<std::size_t>(mirrored * columns + order)] = even - odd;
    spectrum[static_cast<std::size_t>(row * columns + order)] = even + odd;
  }
}

void SphereTransform::synthesise_rows(std::vector<Complex>& spectrum,
                                      std::span<double> field) const {
  // Orders from `degrees` on were last touched by an analysis.
  const std::int64_t columns = grid_.longitudes / 2 + 1;
  for (std::int64_t row = 0; row < grid_.latitudes; ++row) {
    std::fill(spectrum.begin() + row * columns + degrees_, spectrum.begin() + (row + 1) * columns,
              0.0);
  }
  synthesise_real_rows(grid_.latitudes, grid_.longitudes, spectrum, field);
}

void SphereTransform::analyse(std::span<const double> field, std::span<Complex> coefficients) {
  expect(static_cast<std::int64_t>(coefficients.size()) == this->coefficients(),
         "spherical harmonics: coefficients");
  forward_real_rows(grid_.latitudes, grid_.longitudes, field, spectrum_);
  for (std::int64_t m = 0; m < degrees_; ++m) {
    split(spectrum_, m, half_);
    for (std::int64_t l = m; l < degrees_; ++l) {
      coefficients[index(l, m)] = product(scalar_.at(l, m), (l - m) % 2 != 0, half_);
    }
  }
}

void SphereTransform::synthesise(std::span<const Complex> coefficients, std::span<double> field) {
  expect(static_cast<std::int64_t>(coefficients.size()) == this->coefficients(),
         "spherical harmonics: coefficients");
  for (std::int64_t m = 0; m < degrees_; ++m) {
    half_.clear();
    for (std::int64_t l = m; l < degrees_; ++l) {
      add(scalar_.at(l, m), (l - m) % 2 != 0, coefficients[index(l, m)], half_);
    }
    join(half_, m, spectrum_);
  }
  synthesise_rows(spectrum_, field);
}

void SphereTransform::synthesise_wind(std::span<const Complex> stream,
                                      std::span<const Complex> potential, std::span<double> u,
                                      std::span<double> v) {
  for (std::int64_t m = 0; m < degrees_; ++m) {
    half_.clear();
    second_half_.clear();
    for (std::int64_t l = m; l < degrees_; ++l) {
      const Complex psi = stream[index(l, m)];
      const Complex chi = potential[index(l, m)];
      const bool odd = (l - m) % 2 != 0;
      const auto derivative = winds_.polar_derivative.at(l, m);
      const auto over_sine = winds_.order_over_sine.at(l, m);
      // ∂/∂θ turns even functions of the latitude into odd ones.
      add(derivative, !odd, psi, half_);
      add(over_sine, odd, {-chi.imag(), chi.real()}, half_);
      add(over_sine, odd, {-psi.imag(), psi.real()}, second_half_);
      add(derivative, !odd, -chi, second_half_);
    }
    join(half_, m, spectrum_);
    join(second_half_, m, second_spectrum_);
  }
  synthesise_rows(spectrum_, u);
  synthesise_rows(second_spectrum_, v);
}

void SphereTransform::analyse_wind(std::span<const double> u, std::span<const double> v,
                                   std::span<Complex> vorticity, std::span<Complex> divergence) {
  forward_real_rows(grid_.latitudes, grid_.longitudes, u, spectrum_);
  forward_real_rows(grid_.latitudes, grid_.longitudes, v, second_spectrum_);
  for (std::int64_t m = 0; m < degrees_; ++m) {
    split(spectrum_, m, half_);
    split(second_spectrum_, m, second_half_);
    for (std::int64_t l = m; l < degrees_; ++l) {
      const bool odd = (l - m) % 2 != 0;
      const auto derivative = winds_.polar_derivative.at(l, m);
      const auto over_sine = winds_.order_over_sine.at(l, m);
      const Complex u_sine = product(over_sine, odd, half_);
      const Complex v_sine = product(over_sine, odd, second_half_);
      const Complex u_polar = product(derivative, !odd, half_);
      const Complex v_polar = product(derivative, !odd, second_half_);
      vorticity[index(l, m)] = Complex(-v_sine.imag(), v_sine.real()) - u_polar;
      divergence[index(l, m)] = Complex(-u_sine.imag(), u_sine.real()) + v_polar;
    }
  }
}

double SphereTransform::mean(std::span<const double> field) const {
  double sum = 0;
  for (std::int64_t row = 0; row < grid_.latitudes; ++row) {
    double row_sum = 0;
    for (std::int64_t column = 0; column < grid_.longitudes; ++column) {
      row_sum += field[static_cast<std::size_t>(row * grid_.longitudes + column)];
    }
    sum += grid_.weights[static_cast<std::size_t>(row)] * row_sum;
  }
  return sum / (2 * static_cast<double>(grid_.longitudes));
}

}  // namespace garonne::data
