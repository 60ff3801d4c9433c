// Sums in a fixed order of the terms. For the room's own use.
#pragma once

#include <cstdint>
#include <span>

#include "dist/transport.hpp"

namespace garonne::dist {

// result[elements] = ((terms[0] + terms[1]) + terms[2]) + ..., element by element. One of the terms
// may be `result` itself; otherwise the buffers do not overlap. At least one term.
void sum_in_order(void* result, std::span<const void* const> terms, std::int64_t elements,
                  ScalarType type);

}  // namespace garonne::dist
