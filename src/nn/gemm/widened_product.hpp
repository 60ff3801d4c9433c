// Products of bfloat16 on processors that have no instructions for it: blocks of both sides are
// copied to float32 and multiplied there, as the tensor library multiplies such matrices element by
// element.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "nn/node.hpp"

namespace garonne::nn {

// Bytes of the blocks of a product [m, k] · [k, n]. `float32_result`: it is added in place.
std::int64_t widened_product_bytes(const Declaration& declaration, std::int64_t m, std::int64_t n,
                                   std::int64_t k, bool float32_result);

// result [m, n] = scale · left [m, k] · right [k, n] of bfloat16, which may be transposed views.
// The sums are float32, rounded once where the result is bfloat16. `accumulate`: added to a result
// in float32.
void widened_product(const at::Tensor& left, const at::Tensor& right, at::Tensor& result,
                     bool accumulate, double scale);

}  // namespace garonne::nn
