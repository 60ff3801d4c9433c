#include <hdf5.h>

#include <cstddef>
#include <initializer_list>
#include <limits>

#include "data/hdf5/hdf5.hpp"
#include "data/hdf5/hdf5_internal.hpp"

namespace garonne::data {

namespace {

// Bits `first`, first + 1, … of a number, `count` of them.
struct BitRange {
  std::size_t first = 0;
  std::size_t count = 0;
  bool is_within(std::size_t bits) const {
    return count > 0 && first < bits && count <= bits - first;
  }
};

bool has_order(hid_t type) {
  const H5T_order_t order = H5Tget_order(type);
  return order == H5T_ORDER_LE || order == H5T_ORDER_BE;
}

bool has_its_bits(hid_t type, std::size_t bits) {
  const int offset = H5Tget_offset(type);
  return offset >= 0 &&
         BitRange{static_cast<std::size_t>(offset), H5Tget_precision(type)}.is_within(bits);
}

bool has_its_fields(hid_t type, std::size_t bits) {
  BitRange sign{0, 1};
  BitRange exponent;
  BitRange mantissa;
  if (H5Tget_fields(type, &sign.first, &exponent.first, &exponent.count, &mantissa.first,
                    &mantissa.count) < 0) {
    return false;
  }
  for (const BitRange& field : {sign, exponent, mantissa}) {
    if (!field.is_within(bits)) return false;
  }
  return true;
}

}  // namespace

NumberType number_type(hid_t type) {
  NumberType number;
  const std::size_t bytes = H5Tget_size(type);
  if (bytes > std::numeric_limits<int>::max() / 8) return number;  // its bits are counted, too
  number.bytes = static_cast<int>(bytes);
  const H5T_class_t kind = H5Tget_class(type);
  if (bytes > sizeof(double) || (kind != H5T_INTEGER && kind != H5T_FLOAT)) return number;
  const std::size_t bits = 8 * bytes;
  if (!has_order(type) || !has_its_bits(type, bits)) return number;
  if (kind == H5T_FLOAT) {
    if (has_its_fields(type, bits)) number.family = NumberFamily::Floating;
    return number;
  }
  number.family = H5Tget_sign(type) == H5T_SGN_NONE ? NumberFamily::Unsigned : NumberFamily::Signed;
  return number;
}

}  // namespace garonne::data
