#include "nn/layers/causal_attention.hpp"

#include <ATen/Functions.h>
#include <ATen/native/CPUBlas.h>

#include <algorithm>
#include <set>

#include "base/precision.hpp"
#include "nn/gemm/onednn_workspace.hpp"
#include "nn/gemm/product.hpp"

namespace garonne::nn {
namespace {

// Whether this processor multiplies bfloat16 in tiles (AMX).
bool multiplies_in_tiles() {
  return at::native::cpublas::could_pack(at::kBFloat16);
}

// Where the processor multiplies bfloat16 in tiles, keys and values are packed for them first (an
// upper bound: the library does so only where it expects to gain by it).
std::int64_t packing_bytes(const Declaration& declaration, const AttentionSizes& sizes,
                           std::int64_t rows, std::int64_t columns) {
  const std::int64_t sequence = sizes.sequence;
  const std::int64_t head_size = sizes.head_size;
  if (sequence < 64 || !multiplies_in_tiles()) return 0;
  const std::int64_t element = declaration.element_bytes();
  const std::int64_t even_head = head_size + head_size % 2;
  const std::int64_t tail = (sequence - 1) % columns + 1;
  const std::int64_t even_columns =
      (sequence - 1) / columns * (columns + columns % 2) + tail + tail % 2;
  const std::int64_t matrices = sizes.batch * sizes.heads;
  std::int64_t bytes = declaration.tensor(matrices * even_head * sequence) +
                       declaration.tensor(matrices * even_columns * head_size) +
                       declaration.allocation(declaration.threads * columns * head_size * element);
  if (columns % 2 != 0) bytes += declaration.allocation(declaration.threads * rows * element);
  if (even_head != head_size)
    bytes += declaration.allocation(declaration.threads * rows * even_head * element);
  return bytes;
}

// Of the products of pairs of blocks in the backward that oneDNN does, the most: the gradients of
// keys and values, and that of queries. Those of scores are float32.
std::int64_t products_bytes(const Declaration& declaration, const AttentionSizes& sizes,
                            std::int64_t row_block, std::int64_t column_block) {
  const auto counts = [&](std::int64_t block) {
    return std::set{std::min(block, sizes.sequence), (sizes.sequence - 1) % block + 1};
  };
  std::int64_t most = 0;
  // One matrix of scores is not divided among threads: its products are.
  for (const int threads : std::set{1, declaration.threads}) {
    Declaration multiplying = declaration;
    multiplying.threads = threads;
    const auto take = [&](const BFloat16Product& product) {
      most = std::max(most, bfloat16_workspace_bytes(multiplying, product));
    };
    for (const std::int64_t rows : counts(row_block)) {
      for (const std::int64_t columns : counts(column_block)) {
        take({.m = columns, .n = sizes.head_size, .k = rows, .transposed_left = true});
        take({.m = rows, .n = sizes.head_size, .k = columns});
      }
    }
  }
  return most;
}

// The tensor library's blocked attention takes scratch memory of its own. Sizes as its sources
// choose them; held against measurement by a test in all types, since another version may choose
// others.
AttentionBytes processor_bytes(const Declaration& declaration, const AttentionSizes& sizes) {
  const std::int64_t sequence = sizes.sequence;
  const std::int64_t head_size = sizes.head_size;
  const std::int64_t row_block = sequence >= 768 ? 256 : sequence >= 192 ? 64 : 32;
  constexpr std::int64_t column_block = 512;
  const std::int64_t rows = std::min(row_block, sequence);
  const std::int64_t columns = std::min(column_block, sequence);
  const std::int64_t state = state_bytes(declaration.precision);
  AttentionBytes bytes;
  bytes.log_sums = declaration.allocation(sizes.batch * sequence * sizes.heads * state);
  // For each thread one block of scores, the maxima and sums of its rows, and the rows of its
  // result.
  bytes.forward = declaration.allocation(declaration.threads *
                                         (rows * columns + 2 * rows + rows * head_size) * state);
  // For each thread the scores and their gradients; the row sums of the calling thread only, since
  // those of the others are allocated on their threads, which are not of the device tier.
  bytes.backward = declaration.allocation(declaration.threads * 2 * rows * columns * state) +
                   declaration.allocation(rows * state);
  if (declaration.precision == Precision::BFloat16) {
    // The same blocks once more in the compute type, to multiply with.
    const std::int64_t block = declaration.threads * rows * columns * declaration.element_bytes();
    bytes.forward +=
        declaration.allocation(block) + packing_bytes(declaration, sizes, rows, columns);
    bytes.backward += declaration.allocation(2 * block) +
                      products_bytes(declaration, sizes, row_block, column_block);
  }
  return bytes;
}

}  // namespace

Attended causal_attention(const Queue& queue, const AttentionParts& parts) {
  if (queue.device == DeviceKind::Cuda) return gpu_attention(parts);
  const auto [result, log_sums] = at::_scaled_dot_product_flash_attention_for_cpu(
      parts[0], parts[1], parts[2], /*dropout_p=*/0.0, /*is_causal=*/true);
  return {result, log_sums};
}

at::Tensor attention_to_all(const Queue& queue, const AttentionParts& parts) {
  if (queue.device == DeviceKind::Cuda) return gpu_attention_to_all(parts);
  return std::get<0>(at::_scaled_dot_product_flash_attention_for_cpu(
      parts[0], parts[1], parts[2], /*dropout_p=*/0.0, /*is_causal=*/false));
}

AttentionParts causal_attention_backward(const Queue& queue, const AttentionParts& parts,
                                         const at::Tensor& gradient, const Attended& forward) {
  if (queue.device == DeviceKind::Cuda) return gpu_attention_backward(parts, gradient, forward);
  const auto [of_query, of_key, of_value] =
      at::_scaled_dot_product_flash_attention_for_cpu_backward(
          gradient, parts[0], parts[1], parts[2], forward.result, forward.log_sums,
          /*dropout_p=*/0.0, /*is_causal=*/true);
  return {of_query, of_key, of_value};
}

std::int64_t attention_to_all_bytes(const Declaration& declaration,
                                    const AttentionToAllSizes& sizes) {
  if (declaration.device.is_gpu()) return gpu_attention_to_all_bytes(declaration, sizes);
  // As processor_bytes(), of rows and columns that are not equally many.
  const std::int64_t rows = std::min<std::int64_t>(32, sizes.queries);
  const std::int64_t columns = std::min<std::int64_t>(512, sizes.keys);
  const std::int64_t state = state_bytes(declaration.precision);
  std::int64_t bytes =
      declaration.allocation(sizes.queries * sizes.heads * state) +
      declaration.allocation(declaration.threads *
                             (rows * columns + 2 * rows + rows * sizes.head_size) * state);
  if (declaration.precision == Precision::BFloat16)
    bytes +=
        declaration.allocation(declaration.threads * rows * columns * declaration.element_bytes());
  return bytes;
}

AttentionBytes attention_bytes(const Declaration& declaration, const AttentionSizes& sizes) {
  if (!declaration.device.is_gpu()) return processor_bytes(declaration, sizes);
  const GpuAttentionBytes gpu = gpu_attention_bytes(declaration, sizes);
  return {gpu.log_sums, gpu.forward, gpu.backward};
}

}  // namespace garonne::nn
