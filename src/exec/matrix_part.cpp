#include "exec/matrix_part.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace garonne::exec {
namespace {

// Of the dimensions [begin, end) of the box, which are one side of the matrix.
kernels::SideCut cut_of(const nn::Box& box, std::size_t begin, std::size_t end) {
  kernels::SideCut cut;
  bool is_cut = false;
  for (std::size_t d = end; d-- > begin;) {
    if (is_cut) {
      expect(box.shape[d] == box.global[d], "a side of a parameter is cut along two dimensions");
      continue;
    }
    is_cut = box.shape[d] != box.global[d];
    cut.start = box.offset[d] * cut.run;
    cut.stride = box.global[d] * cut.run;
    cut.run *= box.shape[d];
  }
  return cut;
}

}  // namespace

kernels::MatrixPart matrix_part(const nn::Box& box, const plan::ParameterSpec& spec,
                                std::int64_t first, std::int64_t elements) {
  const MatrixSides sides = spec.sides();
  kernels::MatrixPart part;
  part.first = first;
  part.elements = std::clamp<std::int64_t>(box.elements() - first, 0, elements);
  part.rows = sides.rows;
  part.columns = sides.columns;
  if (part.elements == 0) return part;
  // The last dimensions are the columns.
  std::size_t split = box.global.size();
  for (std::int64_t columns = 1; columns < sides.columns;) columns *= box.global[--split];
  for (std::size_t d = split; d < box.shape.size(); ++d) part.width *= box.shape[d];
  part.row_cut = cut_of(box, 0, split);
  part.column_cut = cut_of(box, split, box.global.size());
  part.leads = first == 0 && part.row_cut.start == 0 && part.column_cut.start == 0;
  return part;
}

}  // namespace garonne::exec
