// The score of an ensemble at a point, for the loops of CPUs and for the kernel of devices; private
// to this room. What includes it gets the same order of sums in both.
//
// The fair continuous ranked probability score of M members with the errors e,
//   Σ |e_m| / M − Σ_{m<n} |e_m − e_n| / (M (M − 1)),
// whose expected value does not depend on M (Ferro, Quarterly Journal of the Royal Meteorological
// Society 140, 2014). It may be below zero.
#pragma once

#include "kernels/element.hpp"

#include <cstdint>

namespace garonne::kernels {

// `error_of(member)`: a double, the same whenever it is asked for. At least two members.
template <typename ErrorOf>
GARONNE_INLINE double fair_crps(std::int64_t members, const ErrorOf& error_of) {
  double distance = 0;
  double spread = 0;
  for (std::int64_t m = 0; m < members; ++m) {
    const double error = error_of(m);
    distance += error < 0 ? -error : error;
    for (std::int64_t n = 0; n < m; ++n) {
      const double between = error - error_of(n);
      spread += between < 0 ? -between : between;
    }
  }
  const auto count = static_cast<double>(members);
  return distance / count - spread / (count * (count - 1));
}

// Its derivative by the error of a member: of the subgradients at ties the one in their middle, in
// which equal values do not count.
template <typename ErrorOf>
GARONNE_INLINE double fair_crps_slope(std::int64_t members, std::int64_t member,
                                      const ErrorOf& error_of) {
  const double error = error_of(member);
  std::int64_t above = 0;  // how many more members are below this one than above it
  for (std::int64_t n = 0; n < members; ++n) {
    const double other = error_of(n);
    above += (error > other ? 1 : 0) - (error < other ? 1 : 0);
  }
  const auto count = static_cast<double>(members);
  const double sign = (error > 0 ? 1.0 : 0.0) - (error < 0 ? 1.0 : 0.0);
  return sign / count - static_cast<double>(above) / (count * (count - 1));
}

}  // namespace garonne::kernels
