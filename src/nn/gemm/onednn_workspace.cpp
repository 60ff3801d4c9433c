#include "nn/gemm/onednn_workspace.hpp"

#include <ATen/native/CPUBlas.h>

#include <algorithm>

#include "base/bytes.hpp"

namespace garonne::nn {
namespace {

// oneDNN's descriptors of one product on one thread.
constexpr std::int64_t descriptor_bytes = 1152;
// What oneDNN takes beside each of the at most five parts of a product's workspace, to align it.
constexpr std::int64_t part_alignment_bytes = 5 * 128;
// What small matrices of odd sizes are aligned by.
constexpr std::int64_t alignment_bytes = 2048;

// Of one thread on processors that multiply in tiles. Blocks: 64 rows, four of them side by side,
// 64 columns, all of the depth.
std::int64_t tiled_workspace_bytes(const Declaration& declaration, std::int64_t m, std::int64_t n,
                                   std::int64_t k, bool transposed_left) {
  const std::int64_t element = declaration.element_bytes();
  const std::int64_t rows = m <= 64 ? m : std::min<std::int64_t>(round_up(m, 64), 256);
  // In blocks of 32; rows as long as a power of two are set apart from each other.
  const std::int64_t depth = round_up(k, 32);
  const std::int64_t row = depth + (depth >= 512 ? 32 : 0);
  const bool uneven = depth != k;
  const bool in_blocks = uneven && (transposed_left || k < 32);
  // What does not fit into the cache is taken in parts, the last of which may be of another length,
  // and summed for up to six blocks of columns.
  const bool in_parts = depth > 1024;
  const std::int64_t copies = uneven && in_parts ? 2 : 1;

  const bool copies_left = transposed_left || (k % 2 != 0 && k < 32);
  const std::int64_t left = copies_left ? copies * declaration.allocation(rows * row * element) : 0;
  const std::int64_t right = copies * declaration.allocation(64 * depth * element);
  std::int64_t sums = 0;
  if (in_parts) {
    sums = declaration.allocation(rows * std::min<std::int64_t>(round_up(n, 64), 384) * 4);
  } else if (in_blocks) {
    const std::int64_t columns = n < 32 ? n : std::min<std::int64_t>(round_up(n, 32), 64);
    sums = declaration.allocation(std::min<std::int64_t>(m, 64) * columns * 4);
  }
  constexpr std::int64_t tile = 4096;
  return left + right + sums + tile + (in_blocks ? depth / 32 : 1) * descriptor_bytes +
         (uneven ? alignment_bytes : 0);
}

}  // namespace

bool multiplies_in_tiles() {
  return at::native::cpublas::could_pack(at::kBFloat16);
}

std::int64_t float32_workspace_bytes(const Declaration& declaration, std::int64_t inputs) {
  const std::int64_t right = declaration.allocation(64 * round_up(inputs, 32) * 4);
  return declaration.threads * (right + descriptor_bytes) + part_alignment_bytes;
}

std::int64_t low_precision_workspace_bytes(const Declaration& declaration, std::int64_t m,
                                           std::int64_t n, std::int64_t k, bool transposed_left,
                                           bool in_tiles) {
  // 64: the scale, which the product takes as a tensor.
  constexpr std::int64_t beside = 64 + part_alignment_bytes;
  if (in_tiles) {
    return declaration.threads * tiled_workspace_bytes(declaration, m, n, k, transposed_left) +
           beside;
  }
  const std::int64_t element = declaration.element_bytes();
  const std::int64_t padded = round_up(k, 32);
  const std::int64_t m_block = std::min<std::int64_t>(m, 256);
  const std::int64_t n_block = std::min<std::int64_t>(n, 64);
  const std::int64_t left =
      transposed_left ? declaration.allocation(m_block * padded * element) : 0;
  // A depth that is no multiple of the packing is copied once more beside a transposed left side.
  const std::int64_t right =
      declaration.allocation(64 * padded * element) * (transposed_left && padded != k ? 2 : 1);
  const std::int64_t sums = declaration.allocation(m_block * n_block * 4);
  return declaration.threads * (left + right + sums + descriptor_bytes + alignment_bytes) + beside;
}

}  // namespace garonne::nn
