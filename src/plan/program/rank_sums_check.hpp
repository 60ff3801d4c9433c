// What ranks sum together, against the grid that they are of.
#pragma once

#include "base/grid.hpp"
#include "plan/program/program.hpp"

#include <vector>

namespace garonne::plan {

// A step that trains sums the gradients of all its pieces over the data group, and loss and squares
// over all ranks, where there are several; the first rank of a tensor group counts the loss. Throws
// ReplayError. The Program must have been accepted by replay and be one of a rank.
void check_rank_sums(const Program& program, const GridShape& grid);

// Programs of all ranks, in order: ranks of a data group train each element of their parameters,
// each once or all of them the same, and of the squares of an element just one of them counts, or
// none where another stage or another tensor rank does. Throws ReplayError.
void check_trained_together(const std::vector<Program>& programs);

}  // namespace garonne::plan
