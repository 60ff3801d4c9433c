// Shallow water on a rotating sphere, by spherical harmonics of geopotential, vorticity and
// divergence.
#pragma once

#include <cstdint>
#include <vector>

#include "base/philox.hpp"
#include "data/generate/sphere_transform.hpp"

namespace garonne::data {

struct Planet {
  double radius = 6.37122e6;      // m
  double rotation = 7.292e-5;     // 1/s
  double gravity = 9.80616;       // m/s²
  double mean_height = 1e4;       // m
  double height_amplitude = 120;  // m: the bump of Galewsky, the scale of random heights
};

struct ShallowWaterOptions {
  std::int64_t degrees = 0;  // 0: ⌈latitudes/3⌉, of which products are free of aliases
  double step = 300;         // s
  bool diffusion = true;
  // The published solver rounds two of its constants to single precision: the latitudes of the jet
  // with its scale, and 1/l(l+1) where it takes vorticity and divergence of a wind. With these
  // roundings its trajectories are met to nine digits and more; without, to seven.
  bool published_rounding = true;
  Planet planet = {};
};

// Coefficients, packed as in SphereTransform.
struct ShallowWaterState {
  std::vector<Complex> geopotential;  // m²/s²
  std::vector<Complex> vorticity;     // 1/s
  std::vector<Complex> divergence;    // 1/s
};

// Means are over the sphere.
struct ShallowWaterDiagnostics {
  double mean_geopotential = 0;
  double kinetic_energy = 0;       // ⟨φ |u|²/2⟩
  double total_energy = 0;         // that + ⟨φ²/2⟩
  double potential_enstrophy = 0;  // ⟨(ζ + f)²/(2φ)⟩
  double largest_vorticity = 0;    // max |ζ| over the points of the grid
  double largest_eastward = 0;     // max u
  double largest_northward = 0;    // max |v|
};

// ζ_t = −∇·(u(ζ+f)), δ_t = k·∇×(u(ζ+f)) − Δ(φ + |u|²/2), φ_t = −∇·(uφ). Products on the grid;
// third-order Adams and Bashforth; after a step ζ and δ of degree l are multiplied by
// exp(−(step/2 h)(Δ_l/Δ_max)⁴) where diffusion is on. The equations, parameters and scheme are
// those of the solver published with Bonev et al., "Spherical Fourier neural operators", ICML 2023,
// so that data and scores can be compared. The mean of φ stays to rounding.
class ShallowWaterSolver {
 public:
  // Throws ConfigError for degrees that the longitudes do not carry and for a step that is not
  // positive.
  ShallowWaterSolver(const SphereGrid& grid, const ShallowWaterOptions& options);

  // A jet in balance, and a bump that unsettles it: Galewsky, Scott and Polvani, "An initial-value
  // problem for testing numerical models of the global shallow-water equations", Tellus A 56, 2004.
  ShallowWaterState galewsky();
  // White up to degree 119: heights around the mean by the planet's amplitude, winds by the Mach
  // number. A function of key and sample.
  ShallowWaterState random_state(PhiloxKey key, std::uint64_t sample, double mach) const;

  // Advances `state` by steps · step seconds. The scheme starts afresh: the first tendency counts
  // as the two before it, the second as the one two before it.
  void advance(ShallowWaterState& state, std::int64_t steps);

  // [latitudes, longitudes] each.
  struct Fields {
    std::vector<double> geopotential;
    std::vector<double> vorticity;
    std::vector<double> divergence;
  };
  Fields fields(const ShallowWaterState& state);
  struct Wind {
    std::vector<double> eastward;   // m/s
    std::vector<double> northward;  // m/s
  };
  Wind wind(const ShallowWaterState& state);
  ShallowWaterDiagnostics diagnose(const ShallowWaterState& state);

  SphereTransform& transform() { return transform_; }
  const ShallowWaterOptions& options() const { return options_; }

 private:
  ShallowWaterState zero_state() const;
  // Of the wind (u, v), in 1/s per unit of it, into curl_ and divergence_.
  void analyse_wind(const std::vector<double>& u, const std::vector<double>& v);
  void set_wind(const ShallowWaterState& state);
  void tendency(const ShallowWaterState& state, ShallowWaterState& result);
  double latitude(std::int64_t row) const;

  ShallowWaterOptions options_;
  SphereTransform transform_;
  std::vector<double> laplacian_;          // −l(l+1)/radius² of each coefficient
  std::vector<double> inverse_laplacian_;  // 0 for l = 0
  std::vector<double> curl_factor_;        // 1/radius, with the published rounding
  std::vector<double> damping_;
  std::vector<double> coriolis_;  // [latitudes]
  // Work space: fields and coefficients.
  std::vector<double> geopotential_, vorticity_, u_, v_, first_, second_;
  std::vector<Complex> stream_, potential_, curl_, divergence_;
};

}  // namespace garonne::data
