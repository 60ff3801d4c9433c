// Causal attention on GPUs by the tensor library's kernels, without its autograd. Which one follows
// from the type and the size of a head, never from what is fastest at the moment: bits depend on
// it.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>

#include "nn/node.hpp"

namespace garonne::nn {

struct AttentionSizes {
  std::int64_t batch = 0;
  std::int64_t sequence = 0;
  std::int64_t heads = 0;
  std::int64_t head_size = 0;
};

// Queries, keys and values, all [batch, heads, sequence, head size].
using AttentionParts = std::array<at::Tensor, 3>;

struct Attended {
  at::Tensor result;    // [batch, heads, sequence, head size], whose transpose(1, 2) is contiguous
  at::Tensor log_sums;  // of the exponentials of each row of scores; a storage of its own
};

// bfloat16: flash, or by products where its head sizes are others; float32: memory-efficient, or by
// products likewise; float64: by products, with all scores in memory.
Attended gpu_attention(const AttentionParts& parts);
// Gradients of queries, keys and values, in this order and of their shapes.
AttentionParts gpu_attention_backward(const AttentionParts& parts, const at::Tensor& gradient,
                                      const Attended& forward);

struct AttentionToAllSizes {
  std::int64_t queries = 0;
  std::int64_t keys = 0;  // at most
  std::int64_t heads = 0;
  std::int64_t head_size = 0;
};
// Queries [1, heads, queries, head size], all of one position, to keys and values [1, heads, keys,
// head size] up to it, in any layout with whole heads -> [1, heads, queries, head size]. By
// products in every type, since there are few scores; their sums are in float32 or better.
at::Tensor gpu_attention_to_all(const AttentionParts& parts);
// Bytes of its allocations beside the result, an upper bound.
std::int64_t gpu_attention_to_all_bytes(const Declaration& declaration,
                                        const AttentionToAllSizes& sizes);

// What the others take, as bytes of allocations: upper bounds by shape, from the sources of the
// kernels. The result is not among them, nor the three gradients.
struct GpuAttentionBytes {
  std::int64_t log_sums = 0;
  std::int64_t forward = 0;
  std::int64_t backward = 0;
};
GpuAttentionBytes gpu_attention_bytes(const Declaration& declaration, const AttentionSizes& sizes);

}  // namespace garonne::nn
