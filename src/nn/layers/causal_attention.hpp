// Causal attention by the tensor library's kernels of the queue's device, without its autograd, and
// what they take.
#pragma once

#include <cstdint>

#include "base/device.hpp"
#include "nn/layers/gpu_attention.hpp"
#include "nn/node.hpp"

namespace garonne::nn {

// On GPUs as gpu_attention.hpp says.
Attended causal_attention(const Queue& queue, const AttentionParts& parts);
// Queries [1, heads, queries, head size], all of one position, to keys and values [1, heads, keys,
// head size] up to it, in any layout with whole heads -> [1, heads, queries, head size].
at::Tensor attention_to_all(const Queue& queue, const AttentionParts& parts);
// Gradients of queries, keys and values, in this order and of their shapes, each in a storage of
// its own.
AttentionParts causal_attention_backward(const Queue& queue, const AttentionParts& parts,
                                         const at::Tensor& gradient, const Attended& forward);

// Bytes of allocations beside the result and the three gradients. On processors exact but for
// bfloat16, where they are bounds.
struct AttentionBytes {
  std::int64_t log_sums = 0;
  std::int64_t forward = 0;
  std::int64_t backward = 0;
};
AttentionBytes attention_bytes(const Declaration& declaration, const AttentionSizes& sizes);

// Of attention_to_all, beside the result.
std::int64_t attention_to_all_bytes(const Declaration& declaration,
                                    const AttentionToAllSizes& sizes);

}  // namespace garonne::nn
