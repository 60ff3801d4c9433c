// Parts of matrices as ranks have them, for the tests of Adafactor's kernels.
#pragma once

#include "kernels/matrix_part.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace garonne::kernels::test {

struct NamedPart {
  std::string name;
  MatrixPart part;
  std::int64_t padding = 0;  // elements beyond the matrix
};

inline std::vector<NamedPart> parts_of_matrices() {
  std::vector<NamedPart> parts = {
      {"whole", whole_matrix(7, 13)},   {"wide", whole_matrix(3, 1003)},
      {"high", whole_matrix(1001, 3)},  {"row", whole_matrix(1, 999)},
      {"column", whole_matrix(999, 1)}, {"square", whole_matrix(64, 64)}};
  const auto inside = [](MatrixPart part, std::int64_t first, std::int64_t elements) {
    part.first = first;
    part.elements = elements;
    part.leads = first == 0;
    return part;
  };
  parts.push_back({"from within a row", inside(whole_matrix(40, 33), 100, 701)});
  parts.push_back({"within one row", inside(whole_matrix(5, 500), 620, 200)});
  parts.push_back({"first rows", inside(whole_matrix(50, 21), 0, 330)});
  parts.push_back({"of a column", inside(whole_matrix(500, 1), 33, 300)});
  // The second of two ranks has half of each of three runs of rows, as of fused heads.
  const MatrixPart heads{0, 12 * 10, 10, {4, 8, 4}, {10, 10, 0}, 24, 10, false};
  parts.push_back({"rows of heads", heads});
  parts.push_back({"from within rows of heads", inside(heads, 17, 70)});
  parts.back().part.leads = false;
  parts.push_back({"columns", {0, 20 * 16, 16, {20, 20, 0}, {16, 48, 16}, 20, 48, false}});
  parts.push_back({"columns in runs", {3, 200, 12, {20, 20, 0}, {4, 9, 5}, 20, 27, false}});
  parts.push_back({"padded rows", {0, 5 * 16, 16, {5, 21, 16}, {16, 16, 0}, 21, 16, false}, 48});
  parts.push_back({"padding alone", {80, 0, 16, {5, 21, 16}, {16, 16, 0}, 21, 16, false}, 16});
  return parts;
}

}  // namespace garonne::kernels::test
