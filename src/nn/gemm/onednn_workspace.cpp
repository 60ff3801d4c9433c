#include "nn/gemm/onednn_workspace.hpp"

#include <algorithm>

#include "base/bytes.hpp"

namespace garonne::nn {
namespace {

// oneDNN's descriptors of one product on one thread.
constexpr std::int64_t descriptor_bytes = 1152;

}  // namespace

std::int64_t float32_workspace_bytes(const Declaration& declaration, std::int64_t inputs) {
  const std::int64_t right = declaration.allocation(64 * round_up(inputs, 32) * 4);
  return declaration.threads * (right + descriptor_bytes) + 64;
}

std::int64_t low_precision_workspace_bytes(const Declaration& declaration, std::int64_t m,
                                           std::int64_t n, std::int64_t k, bool transposed_left) {
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
  // Also what small matrices of odd sizes are aligned by.
  constexpr std::int64_t descriptors = descriptor_bytes + 2048;
  // 64: the scale, which the product takes as a tensor.
  return declaration.threads * (left + right + sums + descriptors) + 64;
}

}  // namespace garonne::nn
