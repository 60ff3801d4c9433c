// What oneDNN takes for a product beside operands and result: copies of both sides in blocks, and
// sums in float32, for each thread.
#pragma once

#include <cstdint>

#include "nn/node.hpp"

namespace garonne::nn {

// A float32 forward: the weights in blocks of 64 outputs. An upper bound, found by measuring; a
// library that takes more is not chosen (exec/profile/profile.cpp).
std::int64_t float32_workspace_bytes(const Declaration& declaration, std::int64_t inputs);

// Left [m, k] times right [k, n]. What is transposed lies in memory as the transpose of what it is.
struct BFloat16Product {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  bool transposed_left = false;
  bool transposed_right = false;
};
// Of one bfloat16 product with bfloat16 result on the declared threads of this processor, whatever
// it is scaled by or added to. How oneDNN divides a product depends on its shape, the threads, the
// instructions and the caches; so it is asked: the product is begun on operands of no content, and
// ended where its workspace is allocated, some 2 ms for a shape that is new to the process and
// 0.1 ms for others. Of less than 64 x 64 x 64 it may be carried out.
std::int64_t bfloat16_workspace_bytes(const Declaration& declaration,
                                      const BFloat16Product& product);

}  // namespace garonne::nn
