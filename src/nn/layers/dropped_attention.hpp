// Causal attention with dropout of its weights, on any device: products of the tensor library on a
// few rows of queries at a time, and between them kernels/attention_tile.hpp. Sums and weights are
// in float32 or better.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "kernels/attention_tile.hpp"
#include "kernels/dropout.hpp"
#include "nn/layers/gpu_attention.hpp"
#include "nn/node.hpp"

namespace garonne::nn {

// Queries, keys and values of so many samples and heads go through at once, and of them so many
// rows of scores.
struct AttentionTiles {
  std::int64_t samples = 1;  // more than one only with all heads
  std::int64_t heads = 1;
  std::int64_t rows = 1;
};
AttentionTiles attention_tiles(const AttentionSizes& sizes, DeviceKind device);

// Of one pass.
struct AttentionMask {
  kernels::Dropout dropout;
  std::int64_t first_head = 0;            // among all heads of the model
  const std::int64_t* samples = nullptr;  // [batch], global
};

// qkv [batch · sequence, 3 · heads · head size] -> result [batch · sequence, heads · head size] of
// its type; log_sums [batch, heads, sequence], of the type of sums, are written.
at::Tensor dropped_attention(const Context& context, const AttentionSizes& sizes,
                             const AttentionMask& mask, const at::Tensor& qkv,
                             const at::Tensor& log_sums);
// The gradient of qkv, by that of the result; the mask is the same.
at::Tensor dropped_attention_backward(const Context& context, const AttentionSizes& sizes,
                                      const AttentionMask& mask, const at::Tensor& qkv,
                                      const at::Tensor& log_sums, const at::Tensor& gradient);

// Bytes of allocations beside what is handed in and the result, exact: with S rows of a sample of
// heads of d numbers, R = min(S, 128) rows of scores and n matrices at once, n (3 S d + R S + R d)
// numbers forward and n (5 S d + 2 R S + 2 R d) backward. n · R · S is at most 2^18 on processors
// and 2^25 on GPUs, or n is 1.
struct DroppedAttentionBytes {
  std::int64_t log_sums = 0;
  std::int64_t forward = 0;
  std::int64_t backward = 0;
};
DroppedAttentionBytes dropped_attention_bytes(const Declaration& declaration,
                                              const AttentionSizes& sizes);

// Kernels that the passes put into a queue.
struct DroppedAttentionKernels {
  int forward = 0;
  int backward = 0;
};
DroppedAttentionKernels dropped_attention_kernels(const AttentionSizes& sizes, DeviceKind device);

}  // namespace garonne::nn
