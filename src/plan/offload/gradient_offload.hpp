// Gradients on a tier below the device between the micro-batches that add to them, and from the
// last one on until their update; see plan/offload/paging.hpp.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/program/program.hpp"

namespace garonne::plan {

// Buffers of gradients of `least_bytes` and more, in the order of the Program's buffers.
std::vector<int> movable_gradients(const Program& program, std::int64_t least_bytes);

// The Program with as many sums of squares as there are groups of gradients that follow each other
// in the order of parameters, in which squares are added: not all gradients need to be there at
// once, and the norm has the same bits.
Program with_divided_squares(Program program);

}  // namespace garonne::plan
