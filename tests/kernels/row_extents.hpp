// Rows and columns of what kernels of layers take, and how far their results may be off.
#pragma once

#include "kernels/arrays.hpp"

#include <cstdint>

namespace garonne::kernels::test {

struct Extents {
  std::int64_t rows;
  std::int64_t columns;
};
inline constexpr Extents extents[] = {{1, 1}, {3, 17}, {17, 3}, {257, 65}, {100, 257}, {600, 384}};

inline double scaled(ElementType type, double factor) {
  return factor * rounding(type);
}

}  // namespace garonne::kernels::test
