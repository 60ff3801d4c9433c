#include "data/generate/shallow_water_solver.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "base/error.hpp"
#include "data/generate/normal_numbers.hpp"

namespace garonne::data {
namespace {

using std::numbers::pi;

}  // namespace

ShallowWaterSolver::ShallowWaterSolver(const SphereGrid& grid, const ShallowWaterOptions& options)
    : options_(options),
      transform_(grid, options.degrees == 0 ? (grid.latitudes + 2) / 3 : options.degrees,
                 /*winds=*/true) {
  const double step = options.step;
  const Planet& planet = options.planet;
  if (!(step > 0)) throw ConfigError("step", fmt::format("{}", step), "must be positive");
  const auto coefficients = static_cast<std::size_t>(transform_.coefficients());
  laplacian_.resize(coefficients);
  inverse_laplacian_.resize(coefficients);
  curl_factor_.resize(coefficients);
  damping_.resize(coefficients);
  const std::int64_t largest = transform_.degrees() - 1;
  const auto eigenvalue = [&](std::int64_t degree) {
    return -static_cast<double>(degree * (degree + 1)) / (planet.radius * planet.radius);
  };
  const auto wind_rounding = [&](std::int64_t degree) {
    if (!options.published_rounding || degree == 0) return 1.0;
    const float inverse = 1.0F / static_cast<float>(degree) / static_cast<float>(degree + 1);
    return static_cast<double>(inverse) * static_cast<double>(degree * (degree + 1));
  };
  for (std::int64_t l = 0; l <= largest; ++l) {
    for (std::int64_t m = 0; m <= l; ++m) {
      const std::size_t index = transform_.index(l, m);
      laplacian_[index] = eigenvalue(l);
      inverse_laplacian_[index] = l == 0 ? 0 : 1 / eigenvalue(l);
      curl_factor_[index] = wind_rounding(l) / planet.radius;
      const double ratio = largest == 0 ? 0 : eigenvalue(l) / eigenvalue(largest);
      damping_[index] = options.diffusion ? std::exp(-step / 2 / 3600 * std::pow(ratio, 4)) : 1;
    }
  }
  for (const double cosine : grid.cosines) coriolis_.push_back(2 * planet.rotation * cosine);
  const auto points = static_cast<std::size_t>(transform_.points());
  for (auto* field : {&geopotential_, &vorticity_, &u_, &v_, &first_, &second_}) {
    field->resize(points);
  }
  for (auto* spectrum : {&stream_, &potential_, &curl_, &divergence_}) {
    spectrum->resize(coefficients);
  }
}

double ShallowWaterSolver::latitude(std::int64_t row) const {
  return pi / 2 - transform_.grid().colatitudes[static_cast<std::size_t>(row)];
}

ShallowWaterState ShallowWaterSolver::zero_state() const {
  const std::vector<Complex> zeros(static_cast<std::size_t>(transform_.coefficients()));
  return {zeros, zeros, zeros};
}

ShallowWaterState ShallowWaterSolver::galewsky() {
  const std::int64_t columns = transform_.grid().longitudes;
  double south = pi / 7;
  double north = pi / 2 - south;
  double scale = 80 / std::exp(-4 / ((north - south) * (north - south)));
  if (options_.published_rounding) {
    const auto rounded_south = static_cast<float>(south);
    const auto rounded_north = static_cast<float>(pi / 2) - rounded_south;
    const float width = rounded_north - rounded_south;
    south = rounded_south;
    north = rounded_north;
    scale = 80 / std::exp(-4.0F / (width * width));
  }
  // The jet, its kinetic energy, and the height with its bump.
  for (std::int64_t row = 0; row < transform_.grid().latitudes; ++row) {
    const double phi = latitude(row);
    const double u =
        phi > south && phi < north ? scale * std::exp(1 / ((phi - south) * (phi - north))) : 0;
    for (std::int64_t column = 0; column < columns; ++column) {
      const auto index = static_cast<std::size_t>(row * columns + column);
      const double lambda = 2 * pi * static_cast<double>(column) / static_cast<double>(columns);
      const double along = 3 * (lambda - pi);
      const double across = pi / 4 - phi;
      const double bump = options_.planet.height_amplitude * std::cos(phi) *
                          std::exp(-along * along - 15 * across * across);
      u_[index] = u;
      v_[index] = 0;
      geopotential_[index] =
          options_.planet.gravity * (options_.planet.mean_height + bump) - 0.5 * u * u;
    }
  }
  ShallowWaterState state = zero_state();
  analyse_wind(u_, v_);
  state.vorticity = curl_;
  state.divergence = divergence_;
  // Balance: Δ(φ + u²/2) = k·∇×(u(ζ+f)).
  transform_.synthesise(state.vorticity, vorticity_);
  for (std::int64_t row = 0; row < transform_.grid().latitudes; ++row) {
    for (std::int64_t column = 0; column < columns; ++column) {
      const auto index = static_cast<std::size_t>(row * columns + column);
      first_[index] = u_[index] * (vorticity_[index] + coriolis_[static_cast<std::size_t>(row)]);
    }
  }
  analyse_wind(first_, v_);
  transform_.analyse(geopotential_, state.geopotential);
  for (std::size_t index = 0; index < curl_.size(); ++index) {
    state.geopotential[index] += inverse_laplacian_[index] * curl_[index];
  }
  return state;
}

ShallowWaterState ShallowWaterSolver::random_state(PhiloxKey key, std::uint64_t sample,
                                                   double mach) const {
  constexpr std::int64_t limit = 120;
  // A complex number of variance 1 has half of it in each part.
  const double deviation = std::sqrt(4 * pi / (limit * (limit + 1)) / 2);
  const double wave_speed = std::sqrt(options_.planet.gravity * options_.planet.mean_height);
  ShallowWaterState state = zero_state();
  std::vector<Complex>* const parts[] = {&state.geopotential, &state.vorticity, &state.divergence};
  const double scales[] = {options_.planet.gravity * options_.planet.height_amplitude,
                           mach * wave_speed / options_.planet.radius,
                           mach * wave_speed / options_.planet.radius};
  for (std::uint64_t part = 0; part < 3; ++part) {
    for (std::int64_t l = 0; l < std::min(transform_.degrees(), limit); ++l) {
      for (std::int64_t m = 0; m <= l; ++m) {
        // Numbered by degree and order, so that a finer grid starts from the same waves.
        const auto [real, imaginary] =
            normal_pair(key, part, sample, static_cast<std::uint64_t>(l << 20 | m));
        (*parts[part])[transform_.index(l, m)] =
            scales[part] * deviation * Complex(real, m == 0 ? 0 : imaginary);
      }
    }
  }
  state.geopotential[0] +=
      std::sqrt(4 * pi) * options_.planet.mean_height * options_.planet.gravity;
  return state;
}

void ShallowWaterSolver::analyse_wind(const std::vector<double>& u, const std::vector<double>& v) {
  transform_.analyse_wind(u, v, curl_, divergence_);
  for (std::size_t index = 0; index < curl_.size(); ++index) {
    curl_[index] *= curl_factor_[index];
    divergence_[index] *= curl_factor_[index];
  }
}

void ShallowWaterSolver::set_wind(const ShallowWaterState& state) {
  // ψ and χ of the unit sphere give a wind on the planet when divided by its radius.
  for (std::size_t index = 0; index < stream_.size(); ++index) {
    const double factor = inverse_laplacian_[index] / options_.planet.radius;
    stream_[index] = factor * state.vorticity[index];
    potential_[index] = factor * state.divergence[index];
  }
  transform_.synthesise_wind(stream_, potential_, u_, v_);
}

void ShallowWaterSolver::tendency(const ShallowWaterState& state, ShallowWaterState& result) {
  transform_.synthesise(state.geopotential, geopotential_);
  transform_.synthesise(state.vorticity, vorticity_);
  set_wind(state);
  const auto columns = static_cast<std::size_t>(transform_.grid().longitudes);

  for (std::size_t row = 0; row < coriolis_.size(); ++row) {
    for (std::size_t index = row * columns; index < (row + 1) * columns; ++index) {
      const double absolute = vorticity_[index] + coriolis_[row];
      first_[index] = u_[index] * absolute;
      second_[index] = v_[index] * absolute;
    }
  }
  analyse_wind(first_, second_);
  for (std::size_t index = 0; index < curl_.size(); ++index) {
    result.vorticity[index] = -divergence_[index];
    result.divergence[index] = curl_[index];
  }

  for (std::size_t index = 0; index < u_.size(); ++index) {
    first_[index] = u_[index] * geopotential_[index];
    second_[index] = v_[index] * geopotential_[index];
  }
  analyse_wind(first_, second_);
  for (std::size_t index = 0; index < curl_.size(); ++index) {
    result.geopotential[index] = -divergence_[index];
  }

  for (std::size_t index = 0; index < u_.size(); ++index) {
    first_[index] = geopotential_[index] + 0.5 * (u_[index] * u_[index] + v_[index] * v_[index]);
  }
  transform_.analyse(first_, curl_);
  for (std::size_t index = 0; index < curl_.size(); ++index) {
    result.divergence[index] -= laplacian_[index] * curl_[index];
  }
}

void ShallowWaterSolver::advance(ShallowWaterState& state, std::int64_t steps) {
  ShallowWaterState newest = zero_state();
  ShallowWaterState before = zero_state();
  ShallowWaterState oldest = zero_state();
  const auto add = [&](std::vector<Complex>& values, const std::vector<Complex>& a,
                       const std::vector<Complex>& b, const std::vector<Complex>& c) {
    for (std::size_t index = 0; index < values.size(); ++index) {
      values[index] += options_.step / 12 * (23.0 * a[index] - 16.0 * b[index] + 5.0 * c[index]);
    }
  };
  for (std::int64_t step = 0; step < steps; ++step) {
    tendency(state, newest);
    if (step == 0) before = newest;
    if (step <= 1) oldest = newest;
    add(state.geopotential, newest.geopotential, before.geopotential, oldest.geopotential);
    add(state.vorticity, newest.vorticity, before.vorticity, oldest.vorticity);
    add(state.divergence, newest.divergence, before.divergence, oldest.divergence);
    for (std::size_t index = 0; index < damping_.size(); ++index) {
      state.vorticity[index] *= damping_[index];
      state.divergence[index] *= damping_[index];
    }
    std::swap(oldest, before);
    std::swap(before, newest);
  }
}

ShallowWaterSolver::Fields ShallowWaterSolver::fields(const ShallowWaterState& state) {
  const std::vector<double> zeros(static_cast<std::size_t>(transform_.points()));
  Fields fields{zeros, zeros, zeros};
  transform_.synthesise(state.geopotential, fields.geopotential);
  transform_.synthesise(state.vorticity, fields.vorticity);
  transform_.synthesise(state.divergence, fields.divergence);
  return fields;
}

ShallowWaterSolver::Wind ShallowWaterSolver::wind(const ShallowWaterState& state) {
  set_wind(state);
  return {u_, v_};
}

ShallowWaterDiagnostics ShallowWaterSolver::diagnose(const ShallowWaterState& state) {
  transform_.synthesise(state.geopotential, geopotential_);
  transform_.synthesise(state.vorticity, vorticity_);
  set_wind(state);
  ShallowWaterDiagnostics diagnostics;
  const auto columns = static_cast<std::size_t>(transform_.grid().longitudes);
  std::vector<double>& kinetic = first_;
  std::vector<double>& enstrophy = second_;
  std::vector<double> potential(geopotential_.size());
  for (std::size_t row = 0; row < coriolis_.size(); ++row) {
    for (std::size_t index = row * columns; index < (row + 1) * columns; ++index) {
      const double phi = geopotential_[index];
      const double absolute = vorticity_[index] + coriolis_[row];
      kinetic[index] = 0.5 * phi * (u_[index] * u_[index] + v_[index] * v_[index]);
      potential[index] = 0.5 * phi * phi;
      enstrophy[index] = absolute * absolute / (2 * phi);
      diagnostics.largest_vorticity =
          std::max(diagnostics.largest_vorticity, std::abs(vorticity_[index]));
      diagnostics.largest_eastward = std::max(diagnostics.largest_eastward, u_[index]);
      diagnostics.largest_northward = std::max(diagnostics.largest_northward, std::abs(v_[index]));
    }
  }
  diagnostics.mean_geopotential = transform_.mean(geopotential_);
  diagnostics.kinetic_energy = transform_.mean(kinetic);
  diagnostics.total_energy = diagnostics.kinetic_energy + transform_.mean(potential);
  diagnostics.potential_enstrophy = transform_.mean(enstrophy);
  return diagnostics;
}

}  // namespace garonne::data
