// Incompressible flow on the torus [0, 1)², by its vorticity: ω_t + u·∇ω = νΔω + f with
// u = (ψ_y, −ψ_x), −Δψ = ω. The discretisation of the Navier-Stokes data of Li et al., "Fourier
// neural operator for parametric partial differential equations", ICLR 2021.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/generate/fourier.hpp"

namespace garonne::data {

// Fields are [points, points] at x = i/points (row), y = j/points (column). Pseudo-spectral:
// Crank-Nicolson on νΔ, explicit Euler on advection and forcing, the nonlinear term cut at 2/3 of
// the largest wave number. Spectral accuracy in space, first order in time. The mean of ω stays
// but for that of f.
class VorticitySolver {
 public:
  // Throws ConfigError for an odd number of points or one below 4, or a step or viscosity that is
  // not positive.
  VorticitySolver(std::int64_t points, double viscosity, double step);

  void set_vorticity(std::span<const double> vorticity);
  void set_force(std::span<const double> force);
  void advance(std::int64_t steps);

  std::vector<double> vorticity() const;
  struct Velocity {
    std::vector<double> x;
    std::vector<double> y;
  };
  Velocity velocity() const;

 private:
  void step_once();

  std::int64_t points_;
  double step_;
  std::vector<Complex> spectrum_;  // of ω, [points, points/2 + 1]
  std::vector<Complex> force_;     // of f, times the step
  std::vector<double> x_wave_;     // 2πk of each row; 0 at the middle one, which has no derivative
  std::vector<double> y_wave_;     // 2πk of each column, so too
  std::vector<double> inverse_laplacian_;  // 1/4π²|k|², 0 for the mean
  std::vector<double> explicit_;           // 1 − ½ step ν 4π²|k|²
  std::vector<double> implicit_;           // 1/(1 + ½ step ν 4π²|k|²)
  std::vector<double> dealias_;            // step where the nonlinear term is kept, else 0
  std::vector<Complex> derivatives_;       // spectra of ψ_y, −ψ_x, ω_x, ω_y
  std::vector<double> fields_;             // those four
  std::vector<Complex> advection_;
};

// 0.1 (sin 2π(x+y) + cos 2π(x+y)), [points, points].
std::vector<double> diagonal_force(std::int64_t points);

}  // namespace garonne::data
