// What a rank trains of a parameter as a part of a matrix.
#pragma once

#include <cstdint>

#include "kernels/matrix_part.hpp"
#include "nn/box.hpp"
#include "plan/model/model_graph.hpp"

namespace garonne::exec {

// Of elements [first, first + elements) of the parameter, of which `box` is what the rank has of
// the stored whole. InternalError for a box that is cut along two dimensions of one side.
kernels::MatrixPart matrix_part(const nn::Box& box, const plan::ParameterSpec& spec,
                                std::int64_t first, std::int64_t elements);

}  // namespace garonne::exec
