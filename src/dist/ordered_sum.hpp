// Sums in a fixed order of the terms. For the room's own use.
#pragma once

#include <cstdint>
#include <span>

#include "dist/transport.hpp"

namespace garonne::dist {

// result[elements] = ((terms[0] + terms[1]) + terms[2]) + ..., element by element. One of the terms
// may be `result` itself, of the type that it is kept in; otherwise the buffers do not overlap, and
// terms are of the type of the wire. At least one term. Where the wire is BFloat16 a term that is
// not is rounded to it first, the sum is made in Float32, and what it is kept in rounds it.
void sum_in_order(void* result, std::span<const void* const> terms, std::int64_t elements,
                  SumType type);

// Float32 to BFloat16, rounded, and back. The buffers do not overlap.
void narrow(void* bfloat16, const void* float32, std::int64_t elements);
void widen(void* float32, const void* bfloat16, std::int64_t elements);

}  // namespace garonne::dist
