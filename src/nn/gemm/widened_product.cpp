#include "nn/gemm/widened_product.hpp"

#include <ATen/Functions.h>

#include <algorithm>

#include "base/error.hpp"
#include "nn/gemm/product.hpp"

namespace garonne::nn {
namespace {

// Copies take a fiftieth of the time of products of such blocks.
constexpr std::int64_t most_widened_rows = 256;
constexpr std::int64_t most_columns = 256;
constexpr std::int64_t most_depth = 512;

// A float32 copy of [first, first + count) along both axes, in the memory order of `matrix`.
at::Tensor widened(const at::Tensor& matrix, std::int64_t first_row, std::int64_t rows,
                   std::int64_t first_column, std::int64_t columns, const at::Tensor& block) {
  const at::Tensor part = matrix.narrow(0, first_row, rows).narrow(1, first_column, columns);
  const bool transposed = part.stride(1) != 1 && part.stride(0) == 1;
  const at::Tensor flat = block.narrow(0, 0, rows * columns);
  const at::Tensor copy = transposed ? flat.view({columns, rows}).t() : flat.view({rows, columns});
  copy.copy_(part);
  return copy;
}

}  // namespace

bool multiplies_bfloat16() {
#if defined(__x86_64__)
  // What the tensor library asks for before it calls oneDNN, and the instructions themselves:
  // without them oneDNN takes float32 sums of the whole result beside it, and is slower than blocks
  // are.
  return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bf16");
#else
  return true;
#endif
}

std::int64_t widened_product_bytes(const Declaration& declaration, std::int64_t m, std::int64_t n,
                                   std::int64_t k, bool float32_result) {
  const std::int64_t rows = std::min(m, most_widened_rows);
  const std::int64_t columns = std::min(n, most_columns);
  const std::int64_t depth = std::min(k, most_depth);
  return declaration.allocation(rows * depth * 4) + declaration.allocation(depth * columns * 4) +
         (float32_result ? 0 : declaration.allocation(rows * columns * 4));
}

void widened_product(const at::Tensor& left, const at::Tensor& right, at::Tensor& result,
                     bool accumulate, double scale) {
  const std::int64_t m = left.size(0);
  const std::int64_t k = left.size(1);
  const std::int64_t n = right.size(1);
  const bool in_place = result.scalar_type() == at::kFloat;
  expect(in_place || !accumulate, "a product is added to sums in float32");
  const at::TensorOptions options = left.options().dtype(at::kFloat);
  const std::int64_t rows = std::min(m, most_widened_rows);
  const std::int64_t columns = std::min(n, most_columns);
  const std::int64_t depth = std::min(k, most_depth);
  const at::Tensor left_block = at::empty({rows * depth}, options);
  const at::Tensor right_block = at::empty({depth * columns}, options);
  const at::Tensor sums = in_place ? at::Tensor() : at::empty({rows * columns}, options);
  for (std::int64_t row = 0; row < m; row += rows) {
    const std::int64_t these_rows = std::min(rows, m - row);
    for (std::int64_t column = 0; column < n; column += columns) {
      const std::int64_t these_columns = std::min(columns, n - column);
      const at::Tensor made = result.narrow(0, row, these_rows).narrow(1, column, these_columns);
      at::Tensor sum =
          in_place
              ? made
              : sums.narrow(0, 0, these_rows * these_columns).view({these_rows, these_columns});
      for (std::int64_t first = 0; first < k; first += depth) {
        const std::int64_t this_depth = std::min(depth, k - first);
        const at::Tensor a = widened(left, row, these_rows, first, this_depth, left_block);
        const at::Tensor b = widened(right, first, this_depth, column, these_columns, right_block);
        at::addmm_out(sum, sum, a, b, /*beta=*/first > 0 || accumulate ? 1 : 0, /*alpha=*/scale);
      }
      if (!in_place) made.copy_(sum);
    }
  }
}

}  // namespace garonne::nn
