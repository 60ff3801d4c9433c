// Spherical harmonic transforms of real fields, channels last: Fourier sums along the longitudes,
// then sums over latitude (analysis), and the reverse (synthesis).
//
// Only degrees l >= m exist: coefficients are packed by degree, row(l, m) with the orders m = 0 …
// min(l, orders - 1) of a degree one after the other, so that what acts on degrees finds its rows
// together. Rows of latitude mirror each other, so that functions with even and odd l - m are
// summed over the northern half only, the one over sums of mirrored rows and the other over
// differences. Vector registers run along the channels, in the Fourier sums too: no transposition.
#pragma once

#include "base/device.hpp"
#include "kernels/element_type.hpp"

#include <cstdint>
#include <span>

namespace garonne::kernels {

struct SphereShape {
  std::int64_t latitudes = 0;
  std::int64_t longitudes = 0;
  std::int64_t degrees = 0;
  std::int64_t orders = 0;  // at most degrees and longitudes / 2 + 1

  constexpr std::int64_t northern_rows() const { return (latitudes + 1) / 2; }
  constexpr std::int64_t points() const { return latitudes * longitudes; }
  // First packed row of a degree; of degree `degrees` it is the number of rows.
  constexpr std::int64_t first_row(std::int64_t degree) const {
    return degree <= orders ? degree * (degree + 1) / 2
                            : orders * (orders + 1) / 2 + (degree - orders) * orders;
  }
  constexpr std::int64_t rows() const { return first_row(degrees); }
};

// Elements that a table takes at most. Next to the poles high orders are so small
// that they count nothing; those rows are left out, and what they leave behind is not touched.
std::int64_t sphere_table_elements(const SphereShape& shape);

// The functions of latitude P̄_l^m of base/legendre_table.hpp. `cosines` [latitudes] of the
// colatitudes, north to south, mirrored. Computed in float64, rounded to `type` (Float32 or
// Float64).
void fill_sphere_table(ElementType type, const SphereShape& shape, std::span<const double> cosines,
                       void* table);

// What the terms of both sums are weighted with.
struct SphereFactors {
  const double* rows = nullptr;  // [latitudes], mirrored; null: 1
  double single = 1;             // orders that stand alone: 0, and half the longitudes where even
  double paired = 1;             // all others, which have a conjugate twin
};

struct SphereArguments {
  ElementType type = ElementType::Float32;  // or Float64
  SphereShape shape;
  const void* table = nullptr;
  SphereFactors factors;
  void* grid = nullptr;          // [batch, latitudes, longitudes, channels]
  void* coefficients = nullptr;  // [rows, batch, channels, 2], real and imaginary parts
  std::int64_t batch = 0;
  std::int64_t channels = 0;
  void* workspace = nullptr;  // of sphere_workspace_bytes, aligned to 64
  int threads = 1;            // that the workspace is for; bits do not depend on it
};

std::int64_t sphere_workspace_bytes(ElementType type, const SphereShape& shape, int threads);

// coefficients(l, m) = Σ_k P̄(l, m, k) factor(k, m) Σ_j exp(-i m λ_j) grid(k, j), with
// λ_j = 2π j / longitudes. With factors {quadrature weights, 2π / longitudes twice} the transform.
void sphere_analysis(const Queue& queue, const SphereArguments& arguments);

// grid(k, j) = Re Σ_m factor(k, m) (single: 1, paired: 2 times) exp(i m λ_j) Σ_l P̄(l, m, k)
// coefficients(l, m), imaginary parts of orders that stand alone left out. With all factors 1 the
// inverse transform.
//
// As maps between reals: the adjoint of analysis with (rows, single, paired) is synthesis with
// (rows, single, paired / 2), that of synthesis is analysis with (rows, single, 2 paired).
void sphere_synthesis(const Queue& queue, const SphereArguments& arguments);

}  // namespace garonne::kernels
