// What oneDNN takes for a product beside operands and result: it copies a transposed left side and
// the right side in blocks and sums in float32, for each thread. Upper bounds, found by measuring.
#pragma once

#include <cstdint>

#include "nn/node.hpp"

namespace garonne::nn {

// A float32 forward: the weights in blocks of 64 outputs. A library that takes more is not chosen
// (exec/profile/profile.cpp).
std::int64_t float32_workspace_bytes(const Declaration& declaration, std::int64_t inputs);

// Whether this processor multiplies bfloat16 in tiles (AMX), for which oneDNN copies more.
bool multiplies_in_tiles();

// One bfloat16 product [m, k] · [k, n]. In tiles: oneDNN's blocks with fewer than 16 threads, which
// with more may divide the depth among them.
std::int64_t low_precision_workspace_bytes(const Declaration& declaration, std::int64_t m,
                                           std::int64_t n, std::int64_t k, bool transposed_left,
                                           bool in_tiles = multiplies_in_tiles());

}  // namespace garonne::nn
