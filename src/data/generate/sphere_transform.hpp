// Spherical harmonic transforms in float64 for generators and their checks: of scalars, and between
// winds and their vorticity and divergence. Apart from those of models, which are of scalars alone,
// since generated data keep their bits whatever becomes of kernels, and since this room uses none.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/legendre_table.hpp"
#include "base/sphere_grid.hpp"
#include "data/generate/fourier.hpp"

namespace garonne::data {

// Coefficients c_l^m of degrees l < degrees and orders 0 ≤ m ≤ l, packed as in LegendreTable::row;
// a real field is Σ_l (c_l^0 P̄_l^0 + 2 Re Σ_{m>0} c_l^m P̄_l^m(cos θ) exp(imλ)). Fields are
// [latitudes, longitudes]. Not thread-safe: work space is kept.
class SphereTransform {
 public:
  // Throws ConfigError unless 2 · degrees - 1 <= longitudes. `winds`: tables for winds too.
  SphereTransform(SphereGrid grid, std::int64_t degrees, bool winds);

  const SphereGrid& grid() const { return grid_; }
  std::int64_t degrees() const { return degrees_; }
  std::int64_t coefficients() const { return degrees_ * (degrees_ + 1) / 2; }
  std::int64_t points() const { return grid_.latitudes * grid_.longitudes; }
  std::size_t index(std::int64_t degree, std::int64_t order) const {
    return static_cast<std::size_t>(scalar_.row(degree, order));
  }

  // The quadrature of the grid: exact where the field has degrees below exact_degrees.
  void analyse(std::span<const double> field, std::span<Complex> coefficients);
  void synthesise(std::span<const Complex> coefficients, std::span<double> field);

  // On the unit sphere: eastward u = ∂ψ/∂θ + ∂χ/∂λ / sin θ and northward v = ∂ψ/∂λ / sin θ − ∂χ/∂θ
  // of a stream function ψ and a velocity potential χ (θ from the north pole).
  void synthesise_wind(std::span<const Complex> stream, std::span<const Complex> potential,
                       std::span<double> u, std::span<double> v);
  // Vorticity and divergence of any wind, on the unit sphere: the adjoint, so exact for winds that
  // are no derivative of a function too.
  void analyse_wind(std::span<const double> u, std::span<const double> v,
                    std::span<Complex> vorticity, std::span<Complex> divergence);

  // The mean over the sphere.
  double mean(std::span<const double> field) const;

 private:
  // Fourier coefficients of one order at the rows of the northern half, as sum and difference of
  // mirrored rows, real and imaginary parts apart.
  struct Half {
    std::vector<double> even_real;
    std::vector<double> even_imaginary;
    std::vector<double> odd_real;
    std::vector<double> odd_imaginary;
    void resize(std::size_t count);
    void clear();
  };
  static void add(std::span<const double> row, bool odd, Complex factor, Half& half);
  static Complex product(std::span<const double> row, bool odd, const Half& half);
  // Weighted Fourier coefficients of order m out of spectra.
  void split(const std::vector<Complex>& spectrum, std::int64_t order, Half& half) const;
  void join(const Half& half, std::int64_t order, std::vector<Complex>& spectrum) const;
  // The field of a spectrum of which orders below `degrees` were joined.
  void synthesise_rows(std::vector<Complex>& spectrum, std::span<double> field) const;

  SphereGrid grid_;
  std::int64_t degrees_;
  LegendreTable scalar_;       // at the rows of the northern half, the equator included
  VectorLegendreTable winds_;  // so too
  std::vector<Complex> spectrum_;
  std::vector<Complex> second_spectrum_;
  Half half_;
  Half second_half_;
};

}  // namespace garonne::data
