// Grids on the sphere: rows of latitude from north to south, equally spaced longitudes from 0, and
// the quadrature over latitude that belongs to them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace garonne {

enum class SphereGridKind {
  Equiangular,           // both poles included; Clenshaw-Curtis weights
  EquiangularMidpoints,  // rows in the middle of equal bands, without poles; Fejér's first weights
  LegendreGauss,         // roots of the Legendre polynomial; Gauss weights
};

// "equiangular", "equiangular-midpoints", "legendre-gauss".
std::string sphere_grid_name(SphereGridKind kind);
// Whether a grid of fields has one of these names: its rows are latitudes of the whole sphere.
bool is_sphere_grid(std::string_view name);
// Throws ConfigError that names `key` for a name that is none of these.
SphereGridKind sphere_grid_kind(const std::string& key, const std::string& name);

struct SphereGrid {
  SphereGridKind kind = SphereGridKind::Equiangular;
  std::int64_t latitudes = 0;
  std::int64_t longitudes = 0;
  // All [latitudes], north to south; row k and row latitudes - 1 - k mirror each other to the bit.
  std::vector<double> colatitudes;  // radians from the north pole
  std::vector<double> cosines;      // of the colatitude: 1 at the north pole
  std::vector<double> sines;        // of the colatitude: 0 at the poles, to the bit
  // Σ_k weights[k] f(cosines[k]) is the integral of f over [-1, 1] (the weights add up to 2): exact
  // for polynomials of degree < latitudes (equiangular, with poles or without) or < 2 latitudes
  // (Legendre-Gauss).
  std::vector<double> weights;
};

// Throws ConfigError for fewer than 2 latitudes or 1 longitude.
SphereGrid make_sphere_grid(SphereGridKind kind, std::int64_t latitudes, std::int64_t longitudes);

// The degrees of spherical harmonics that the quadrature of a grid still transforms exactly.
std::int64_t exact_degrees(SphereGridKind kind, std::int64_t latitudes);

// Weights of rows with mean 1, as latitude-weighted losses take them: the quadrature's.
std::vector<double> mean_one_weights(const SphereGrid& grid);

}  // namespace garonne
