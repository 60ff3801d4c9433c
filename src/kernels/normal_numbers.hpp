// Normal numbers by Box and Muller, with a logarithm, sine and cosine of their own in IEEE
// operations alone: a run on unlike machines and devices starts from the same bits on all of them,
// which mathematical libraries do not promise. Private to this room; what includes it is compiled
// without contraction of products and sums.
#pragma once

#include "kernels/element.hpp"

#include <bit>
#include <cmath>
#include <cstdint>
#include <numbers>

namespace garonne::kernels {

// The value of an unsigned 32-bit integer, by the exponent of 2^52: vectorises without AVX-512.
GARONNE_INLINE double to_double(std::uint32_t value) {
  return std::bit_cast<double>(0x4330000000000000ULL | value) - 0x1p52;
}

// Natural logarithm of a normal 0 < x < infinity, within 2 ulp. With x = 2^k m and
// sqrt(1/2) <= m < sqrt(2): log m = 2 atanh(s), s = (m - 1) / (m + 1); coefficients of fdlibm.
GARONNE_INLINE double logarithm(double x) {
  const std::uint64_t bits = std::bit_cast<std::uint64_t>(x);
  double mantissa = std::bit_cast<double>((bits & 0x000FFFFFFFFFFFFFULL) | 0x3FF0000000000000ULL);
  double exponent = to_double(static_cast<std::uint32_t>(bits >> 52)) - 1023.0;
  const bool high = mantissa > std::numbers::sqrt2;
  exponent += high ? 1.0 : 0.0;
  mantissa *= high ? 0.5 : 1.0;
  const double f = mantissa - 1.0;
  const double s = f / (2.0 + f);
  const double z = s * s;
  double series = 1.479819860511658591e-01;
  series = series * z + 1.531383769920937332e-01;
  series = series * z + 1.818357216161805012e-01;
  series = series * z + 2.222219843214978396e-01;
  series = series * z + 2.857142874366239149e-01;
  series = series * z + 3.999999999940941908e-01;
  series = series * z + 6.666666666666735130e-01;
  series = series * z;
  const double half_square = 0.5 * f * f;
  constexpr double ln2_high = 6.93147180369123816490e-01;
  constexpr double ln2_low = 1.90821492927058770002e-10;
  return exponent * ln2_high -
         ((half_square - (s * (half_square + series) + exponent * ln2_low)) - f);
}

// Cosine and sine of 2 pi turn for 0 <= turn < 1: an exact reduction to an eighth of a turn, then
// fdlibm's polynomials.
GARONNE_INLINE void cosine_and_sine(double turn, double& cosine, double& sine) {
  constexpr double round_to_integer = 0x1.8p52;
  const double shifted = turn * 4.0 + round_to_integer;
  const double quarters = shifted - round_to_integer;
  const double angle = (turn - quarters * 0.25) * (2.0 * std::numbers::pi);
  const double z = angle * angle;
  double s = 1.58969099521155010221e-10;
  s = s * z - 2.50507602534068634195e-08;
  s = s * z + 2.75573137070700676789e-06;
  s = s * z - 1.98412698298579493134e-04;
  s = s * z + 8.33333333332248946124e-03;
  s = s * z - 1.66666666666666324348e-01;
  s = angle + angle * (z * s);
  double c = -1.13596475577881948265e-11;
  c = c * z + 2.08757232129817482790e-09;
  c = c * z - 2.75573143513906633035e-07;
  c = c * z + 2.48015872894767294178e-05;
  c = c * z - 1.38888888888741095749e-03;
  c = c * z + 4.16666666666666019037e-02;
  c = (1.0 - 0.5 * z) + z * (z * c);
  // Quarters 0 to 4: which of the two is which, and their signs.
  const bool swapped = quarters == 1.0 || quarters == 3.0;
  const double first = swapped ? s : c;
  const double second = swapped ? c : s;
  cosine = quarters == 1.0 || quarters == 2.0 ? -first : first;
  sine = quarters == 2.0 || quarters == 3.0 ? -second : second;
}

// Two numbers of mean 0 from two random words.
GARONNE_INLINE void normal_pair(std::uint32_t word0, std::uint32_t word1, double deviation,
                                double& first, double& second) {
  // Halves keep the logarithm's argument above 0 and below 1.
  const double uniform = (to_double(word0) + 0.5) * 0x1p-32;
  const double turn = (to_double(word1) + 0.5) * 0x1p-32;
  const double radius = deviation * std::sqrt(-2.0 * logarithm(uniform));
  double cosine = 0.0;
  double sine = 0.0;
  cosine_and_sine(turn, cosine, sine);
  first = radius * cosine;
  second = radius * sine;
}

}  // namespace garonne::kernels
