#include "train/checkpoint/finite.hpp"

#include <cstdint>
#include <cstring>

#include "base/error.hpp"

namespace garonne::train {
namespace {

// Infinities and NaNs are the numbers whose exponent has all bits set. Adding one to it carries
// into the place of the sign, and what was carried anywhere is kept: no branch, so compilers use
// vectors.
template <typename Bits>
bool all_finite(std::span<const std::byte> elements, Bits one_in_exponent) {
  constexpr Bits sign = Bits{1} << (8 * sizeof(Bits) - 1);
  Bits carried = 0;
  for (std::size_t at = 0; at + sizeof(Bits) <= elements.size(); at += sizeof(Bits)) {
    Bits bits = 0;
    std::memcpy(&bits, elements.data() + at, sizeof bits);
    carried |= (bits & ~sign) + one_in_exponent;
  }
  return (carried & sign) == 0;
}

}  // namespace

bool all_finite(const std::string& type, std::span<const std::byte> elements) {
  if (type == "F32") return all_finite<std::uint32_t>(elements, std::uint32_t{1} << 23);
  if (type == "U8") return true;
  expect(type == "F64", "all_finite knows F32, F64 and U8 and got " + type);
  return all_finite<std::uint64_t>(elements, std::uint64_t{1} << 52);
}

}  // namespace garonne::train
