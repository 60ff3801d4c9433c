// NumPy's file format for one array: statistics of fields are kept in it. Format: numpy.lib.format,
// versions 1.0 to 3.0.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace garonne::data {

// An array in C order: the last index runs fastest. T is float or double.
template <typename T>
struct NpyArray {
  std::vector<std::int64_t> shape;
  std::vector<T> values;  // [product of shape]
};

// Reads little-endian float32 or float64 in C order and converts to T. IoError with the path for a
// file that is missing, truncated, longer than its shape says, of another element type, in Fortran
// order, or no .npy file.
template <typename T>
NpyArray<T> read_npy(const std::string& path);

// Writes version 1.0, little-endian T in C order, whole or not at all (base/file.hpp).
template <typename T>
void write_npy(const std::string& path, const std::vector<std::int64_t>& shape,
               std::span<const T> values);

}  // namespace garonne::data
