// Fourier and cosine transforms of plain arrays in float64, by pocketfft. Every transform gives the
// same bits for the same input, on one thread.
#pragma once

#include <complex>
#include <cstdint>
#include <span>

namespace garonne::data {

using Complex = std::complex<double>;

// Real [fields, rows, columns] to half spectra [fields, rows, columns/2 + 1]:
// X[k, l] = Σ x[i, j] exp(-2πi(ki/rows + lj/columns)).
void forward_real_plane(std::int64_t fields, std::int64_t rows, std::int64_t columns,
                        std::span<const double> values, std::span<Complex> spectrum);
// The inverse, divided by rows · columns. What in a spectrum belongs to no real field (imaginary
// parts of the first and the middle column) counts as 0.
void inverse_real_plane(std::int64_t fields, std::int64_t rows, std::int64_t columns,
                        std::span<const Complex> spectrum, std::span<double> values);

// Along the rows alone: real [rows, columns] to [rows, columns/2 + 1], X[l] = Σ x[j]
// exp(-2πilj/columns).
void forward_real_rows(std::int64_t rows, std::int64_t columns, std::span<const double> values,
                       std::span<Complex> spectrum);
// x[j] = Re X[0] + 2 Re Σ_{0<l<columns/2} X[l] exp(2πilj/columns) (+ the middle one, real): the
// inverse but for a factor `columns`.
void synthesise_real_rows(std::int64_t rows, std::int64_t columns,
                          std::span<const Complex> spectrum, std::span<double> values);

// In place, [rows, columns]: the inverse of the orthonormal cosine transform of type II in both
// directions.
void inverse_cosine_plane(std::int64_t rows, std::int64_t columns, std::span<double> values);

}  // namespace garonne::data
