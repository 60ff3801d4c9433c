// Which elements of a matrix a rank has.
#pragma once

#include <cstdint>

namespace garonne::kernels {

// Rows or columns: index i of those here is index i / run * stride + start + i % run of the whole.
struct SideCut {
  std::int64_t run = 1;
  std::int64_t stride = 1;
  std::int64_t start = 0;
};

// Elements first, first + 1, … of `here` rows and columns, row-major, that are cut out of a whole
// matrix.
struct MatrixPart {
  std::int64_t first = 0;
  std::int64_t elements = 0;  // what has more than these is padded beyond the matrix
  std::int64_t width = 1;     // columns here
  SideCut row_cut;
  SideCut column_cut;
  std::int64_t rows = 0;  // of the whole
  std::int64_t columns = 1;
  // It has the first element of the whole, and so adds what is to be added once.
  bool leads = false;
};

// A matrix that is all here.
constexpr MatrixPart whole_matrix(std::int64_t rows, std::int64_t columns) {
  return {0, rows * columns, columns, {rows, rows, 0}, {columns, columns, 0}, rows, columns, true};
}

}  // namespace garonne::kernels
