// Gaussian random fields on the unit square with covariance σ²(−Δ + τ²)^(−α), from a series of
// eigenfunctions: inputs of the data sets of Li et al., "Fourier neural operator for parametric
// partial differential equations", ICLR 2021, whose published scripts fix the coefficients.
#pragma once

#include <cstdint>
#include <vector>

#include "base/philox.hpp"

namespace garonne::data {

struct GaussianFieldShape {
  double alpha = 2.0;  // smoothness
  double tau = 3.0;    // inverse length
};

// Zero normal derivative at the boundary, [points, points]: cosines k₁, k₂ < points with standard
// deviation τ^(α−1) (π²|k|² + τ²)^(−α/2), without the constant, sampled at (i + ½)/points.
std::vector<double> neumann_gaussian_field(const GaussianFieldShape& shape, std::int64_t points,
                                           PhiloxKey key, std::uint64_t sample);

// Periodic, [points, points] at i/points: variance σ² Σ_{k ≠ 0} (4π²|k|² + τ²)^(−α) with
// σ = τ^((2α−2)/2), over |k₁|, |k₂| < points/2.
std::vector<double> periodic_gaussian_field(const GaussianFieldShape& shape, std::int64_t points,
                                            PhiloxKey key, std::uint64_t sample);

}  // namespace garonne::data
