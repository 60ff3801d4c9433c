#include "data/generate/vorticity_solver.hpp"

#include <fmt/format.h>

#include <cmath>
#include <numbers>

#include "base/error.hpp"

namespace garonne::data {
namespace {

using std::numbers::pi;

}  // namespace

VorticitySolver::VorticitySolver(std::int64_t points, double viscosity, double step)
    : points_(points), step_(step) {
  if (points < 4 || points % 2 != 0) {
    throw ConfigError("resolution", fmt::format("{}", points), "must be even and at least 4");
  }
  if (!(viscosity > 0)) {
    throw ConfigError("viscosity", fmt::format("{}", viscosity), "must be positive");
  }
  if (!(step > 0)) throw ConfigError("step", fmt::format("{}", step), "must be positive");
  const std::int64_t columns = points / 2 + 1;
  const auto count = static_cast<std::size_t>(points * columns);
  for (auto* values : {&inverse_laplacian_, &explicit_, &implicit_, &dealias_}) {
    values->resize(count);
  }
  spectrum_.resize(count);
  force_.resize(count);
  advection_.resize(count);
  derivatives_.resize(4 * count);
  fields_.resize(static_cast<std::size_t>(4 * points * points));
  const auto wave = [&](std::int64_t k) {
    return k == points / 2 ? 0.0 : 2 * pi * static_cast<double>(k < points / 2 ? k : k - points);
  };
  for (std::int64_t row = 0; row < points; ++row) x_wave_.push_back(wave(row));
  for (std::int64_t column = 0; column < columns; ++column) y_wave_.push_back(wave(column));
  for (std::int64_t row = 0; row < points; ++row) {
    const std::int64_t i = row < points / 2 ? row : points - row;
    for (std::int64_t j = 0; j < columns; ++j) {
      const auto index = static_cast<std::size_t>(row * columns + j);
      const double laplacian = 4 * pi * pi * static_cast<double>(i * i + j * j);
      inverse_laplacian_[index] = laplacian > 0 ? 1 / laplacian : 0;
      explicit_[index] = 1 - 0.5 * step * viscosity * laplacian;
      implicit_[index] = 1 / (1 + 0.5 * step * viscosity * laplacian);
      // 2/3 of points/2, in integers.
      dealias_[index] = 3 * i <= points && 3 * j <= points ? step : 0;
    }
  }
}

void VorticitySolver::set_vorticity(std::span<const double> vorticity) {
  forward_real_plane(1, points_, points_, vorticity, spectrum_);
}

void VorticitySolver::set_force(std::span<const double> force) {
  forward_real_plane(1, points_, points_, force, force_);
  for (Complex& coefficient : force_) coefficient *= step_;
}

void VorticitySolver::advance(std::int64_t steps) {
  for (std::int64_t step = 0; step < steps; ++step) step_once();
}

void VorticitySolver::step_once() {
  const std::size_t columns = y_wave_.size();
  const std::size_t count = spectrum_.size();
  Complex* const u = derivatives_.data();
  Complex* const v = u + count;
  Complex* const x = v + count;
  Complex* const y = x + count;
  for (std::size_t row = 0; row < x_wave_.size(); ++row) {
    for (std::size_t column = 0; column < columns; ++column) {
      const std::size_t index = row * columns + column;
      const Complex turned(-spectrum_[index].imag(), spectrum_[index].real());  // i ω
      x[index] = x_wave_[row] * turned;
      y[index] = y_wave_[column] * turned;
      u[index] = inverse_laplacian_[index] * y[index];
      v[index] = -inverse_laplacian_[index] * x[index];
    }
  }
  inverse_real_plane(4, points_, points_, derivatives_, fields_);
  const std::size_t area = fields_.size() / 4;
  const std::span<double> advection(fields_.data(), area);
  for (std::size_t index = 0; index < area; ++index) {
    advection[index] = fields_[index] * fields_[2 * area + index] +
                       fields_[area + index] * fields_[3 * area + index];
  }
  forward_real_plane(1, points_, points_, advection, advection_);
  for (std::size_t index = 0; index < count; ++index) {
    spectrum_[index] = implicit_[index] * (explicit_[index] * spectrum_[index] + force_[index] -
                                           dealias_[index] * advection_[index]);
  }
}

std::vector<double> VorticitySolver::vorticity() const {
  std::vector<double> field(static_cast<std::size_t>(points_ * points_));
  inverse_real_plane(1, points_, points_, spectrum_, field);
  return field;
}

VorticitySolver::Velocity VorticitySolver::velocity() const {
  const std::size_t columns = y_wave_.size();
  std::vector<Complex> x(spectrum_.size());
  std::vector<Complex> y(spectrum_.size());
  for (std::size_t row = 0; row < x_wave_.size(); ++row) {
    for (std::size_t column = 0; column < columns; ++column) {
      const std::size_t index = row * columns + column;
      const Complex stream = inverse_laplacian_[index] * spectrum_[index];
      x[index] = Complex(0, y_wave_[column]) * stream;
      y[index] = Complex(0, -x_wave_[row]) * stream;
    }
  }
  const auto area = static_cast<std::size_t>(points_ * points_);
  Velocity velocity{std::vector<double>(area), std::vector<double>(area)};
  inverse_real_plane(1, points_, points_, x, velocity.x);
  inverse_real_plane(1, points_, points_, y, velocity.y);
  return velocity;
}

std::vector<double> diagonal_force(std::int64_t points) {
  std::vector<double> force;
  force.reserve(static_cast<std::size_t>(points * points));
  for (std::int64_t i = 0; i < points; ++i) {
    for (std::int64_t j = 0; j < points; ++j) {
      const double angle =
          2 * pi * static_cast<double>((i + j) % points) / static_cast<double>(points);
      force.push_back(0.1 * (std::sin(angle) + std::cos(angle)));
    }
  }
  return force;
}

}  // namespace garonne::data
