#include "fuzz/hdf5_types.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace garonne::fuzz {
namespace {

hid_t integer_type(bool is_signed, std::size_t bytes, bool big) {
  const hid_t type = H5Tcopy(is_signed ? H5T_STD_I64LE : H5T_STD_U64LE);
  H5Tset_size(type, std::clamp<std::size_t>(bytes, 1, 16));
  if (big) H5Tset_order(type, H5T_ORDER_BE);
  return type;
}

hid_t float_type(std::size_t bytes, bool big) {
  if (bytes == 16) return H5Tcopy(H5T_NATIVE_LDOUBLE);
  const hid_t type = H5Tcopy(bytes == 8 ? H5T_IEEE_F64LE : H5T_IEEE_F32LE);
  if (bytes == 2) {
    H5Tset_fields(type, 15, 10, 5, 0, 10);
    H5Tset_ebias(type, 15);
    H5Tset_size(type, 2);
  }
  if (big) H5Tset_order(type, H5T_ORDER_BE);
  return type;
}

hid_t enumeration(std::size_t bytes) {
  const hid_t type = H5Tenum_create(bytes == 1 ? H5T_NATIVE_INT8 : H5T_NATIVE_INT32);
  for (std::int32_t value : {0, 1}) {
    const auto narrow = static_cast<std::int8_t>(value);
    H5Tenum_insert(type, value == 0 ? "FALSE" : "TRUE",
                   bytes == 1 ? static_cast<const void*>(&narrow) : &value);
  }
  return type;
}

}  // namespace

hid_t text_type(std::size_t bytes) {
  const hid_t type = H5Tcopy(H5T_C_S1);
  H5Tset_size(type, bytes == 0 ? H5T_VARIABLE : bytes);
  return type;
}

hid_t type_of(const std::string& word) {
  if (word.empty()) return -1;
  const std::size_t bytes = number_of(std::string_view(word).substr(1));
  const bool big = word.back() == 'b';
  switch (word[0]) {
    case 'f':
      return float_type(bytes, big);
    case 'i':
    case 'u':
      return integer_type(word[0] == 'i', bytes, big);
    case 'e':
      return enumeration(bytes);
    case 'b':
      return H5Tcopy(H5T_STD_B8LE);
    case 's':
      return text_type(std::min(bytes, most_text));
    case 'o':
      return H5Tcreate(H5T_OPAQUE, std::clamp<std::size_t>(bytes, 1, most_text));
    case 'c': {
      const hid_t type = H5Tcreate(H5T_COMPOUND, 8);
      H5Tinsert(type, "one", 0, H5T_IEEE_F32LE);
      H5Tinsert(type, "two", 4, H5T_STD_I32LE);
      return type;
    }
    case 'r':
      return H5Tcopy(H5T_STD_REF_OBJ);
    case 'v':
      return H5Tvlen_create(H5T_STD_I32LE);
    case 'a': {
      const hsize_t two = 2;
      return H5Tarray_create2(H5T_IEEE_F32LE, 1, &two);
    }
    default:
      return -1;
  }
}

hid_t space_of(const std::string& word) {
  if (word == "scalar") return H5Screate(H5S_SCALAR);
  if (word == "null") return H5Screate(H5S_NULL);
  Extent most;
  const Extent extent = extent_of(word, &most);
  return H5Screate_simple(static_cast<int>(extent.size()), extent.data(), most.data());
}

hid_t selection_of(const std::string& word, const Extent& extent) {
  const hid_t space = H5Screate_simple(static_cast<int>(extent.size()), extent.data(), nullptr);
  if (word == "all") return space;
  bool first = true;
  for (const std::string& one : split(word, '+')) {
    std::array<Extent, 4> parts;
    for (const std::string& along : split(one, ',')) {
      std::vector<std::string> numbers = split(along, ':');
      numbers.resize(4, "1");
      for (std::size_t part = 0; part < 4; ++part)
        parts[part].push_back(numbers[part] == "*" ? H5S_UNLIMITED : number_of(numbers[part]));
    }
    for (Extent& part : parts) part.resize(std::max(extent.size(), part.size()), 1);
    H5Sselect_hyperslab(space, first ? H5S_SELECT_SET : H5S_SELECT_OR, parts[0].data(),
                        parts[1].data(), parts[2].data(), parts[3].data());
    first = false;
  }
  return space;
}

bool holds_numbers(hid_t type) {
  const H5T_class_t kind = H5Tget_class(type);
  return kind == H5T_INTEGER || kind == H5T_FLOAT;
}

bool has_heap(hid_t type) {
  const H5T_class_t kind = H5Tget_class(type);
  return kind == H5T_REFERENCE || kind == H5T_VLEN || H5Tis_variable_str(type) > 0;
}

}  // namespace garonne::fuzz
