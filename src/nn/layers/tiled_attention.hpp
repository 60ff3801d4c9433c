// Causal attention in tiles, on any device: products of the tensor library on a few rows of queries
// at a time, and between them kernels/attention_tile.hpp, which can drop weights. Sums and weights
// are in float32 or better.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "base/precision.hpp"
#include "kernels/attention_tile.hpp"
#include "kernels/dropout.hpp"
#include "nn/node.hpp"

namespace garonne::nn {

// Whether attention without dropout goes in tiles: in bfloat16 on processors that have no
// instructions for it, where the tensor library's own multiplies element by element.
bool attends_in_tiles(Precision precision, DeviceKind device);

// Each group has a head of keys and one of values, and `members` heads of queries that see them.
struct TiledAttentionSizes {
  std::int64_t batch = 0;
  std::int64_t sequence = 0;
  std::int64_t groups = 0;
  std::int64_t members = 1;
  std::int64_t head_size = 0;

  std::int64_t heads() const { return groups * members; }
};

// Queries, keys and values of so many samples and groups go through at once, and so many rows of
// each head of queries.
struct AttentionTiles {
  std::int64_t samples = 1;  // more than one only with all groups
  std::int64_t groups = 1;
  std::int64_t rows = 1;
};
// `threads` of a processor; a GPU's tiles do not depend on it.
AttentionTiles attention_tiles(const TiledAttentionSizes& sizes, DeviceKind device, int threads);

// Of one pass.
struct AttentionMask {
  kernels::Dropout dropout;
  std::int64_t first_head = 0;            // among all heads of the model
  const std::int64_t* samples = nullptr;  // [batch], global; null where dropout is off
};

// qkv [batch, sequence, groups, members + 2, head size]: of each group the queries of its members,
// then keys and values, in any layout -> result [batch, sequence, groups, members, head size], in
// any layout, written; log_sums [batch, heads, sequence], of the type of sums, written, too.
void tiled_attention(const Context& context, const TiledAttentionSizes& sizes,
                     const AttentionMask& mask, const at::Tensor& qkv, const at::Tensor& result,
                     const at::Tensor& log_sums);
// The gradient of qkv, of its shape, written, by that of the result; the mask is the same.
void tiled_attention_backward(const Context& context, const TiledAttentionSizes& sizes,
                              const AttentionMask& mask, const at::Tensor& qkv,
                              const at::Tensor& log_sums, const at::Tensor& of_result,
                              const at::Tensor& of_qkv);

// Bytes of allocations beside what is handed in, exact: with S rows of a sample of heads of d
// numbers, m members, R = min(S, max(16, 128 / m)) rows of scores and n groups at once, n (2 S d +
// m R S + m R d) numbers forward and twice that backward. n · m · R · S is at most 2^18 for each
// thread of a processor and 2^25 on GPUs, or n is 1.
struct TiledAttentionBytes {
  std::int64_t log_sums = 0;
  std::int64_t forward = 0;
  std::int64_t backward = 0;
};
TiledAttentionBytes tiled_attention_bytes(const Declaration& declaration,
                                          const TiledAttentionSizes& sizes);

// Kernels that the passes put into a queue.
struct TiledAttentionKernels {
  int forward = 0;
  int backward = 0;
};
TiledAttentionKernels tiled_attention_kernels(const Declaration& declaration,
                                              const TiledAttentionSizes& sizes);

}  // namespace garonne::nn
