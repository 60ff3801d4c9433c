#include "kernels/embedding.hpp"

#include "kernels/cpu/loops.hpp"
#include "kernels/cpu/parallel.hpp"
#include "kernels/cpu/scalar_value.hpp"
#include "kernels/device/embedding.hpp"
#include "kernels/dispatch.hpp"

#include <cstring>

namespace garonne::kernels {

namespace {

void fill_zero(const Queue& queue, void* destination, std::int64_t bytes) {
  for_ranges(queue, bytes, 65536, 64, [&](std::int64_t begin, std::int64_t end) {
    std::memset(static_cast<char*>(destination) + begin, 0, static_cast<std::size_t>(end - begin));
  });
}

}  // namespace

void embedding_forward(const Queue& queue, ElementType type, const std::int64_t* tokens,
                       const void* token_table, const void* position_table, void* out,
                       const Dropout& dropout, const std::int64_t* samples, std::int64_t rows,
                       std::int64_t sequence, std::int64_t hidden) {
  const auto on_device = [&](const auto& place) {
    device::embedding_forward(place, type, tokens, token_table, position_table, out, dropout,
                              samples, rows, sequence, hidden);
  };
  if (put_on_device(queue, on_device)) return;
  const EmbeddingForwardArguments arguments{
      tokens, token_table, position_table, out, value_of(dropout), samples, sequence, hidden};
  const auto loop = loops().embedding_forward[type];
  for_ranges(queue, rows, row_grain(hidden), 1,
             [&](std::int64_t begin, std::int64_t end) { loop(arguments, begin, end); });
}

void embedding_backward(const Queue& queue, ElementType type, const void* gradient_out,
                        const std::int64_t* tokens, void* gradient_token_table,
                        bool accumulate_token_table, void* gradient_position_table,
                        bool accumulate_position_table, const Dropout& dropout,
                        const std::int64_t* samples, std::int64_t rows, std::int64_t sequence,
                        std::int64_t hidden, std::int64_t vocabulary, std::int64_t positions) {
  const auto on_device = [&](const auto& place) {
    device::embedding_backward(place, type, gradient_out, tokens, gradient_token_table,
                               accumulate_token_table, gradient_position_table,
                               accumulate_position_table, dropout, samples, rows, sequence, hidden,
                               vocabulary, positions);
  };
  if (put_on_device(queue, on_device)) return;
  const std::int64_t row_bytes = hidden * element_bytes(accumulation_type(type));
  if (gradient_token_table && !accumulate_token_table) {
    fill_zero(queue, gradient_token_table, vocabulary * row_bytes);
  }
  if (gradient_position_table && !accumulate_position_table) {
    fill_zero(queue, gradient_position_table, positions * row_bytes);
  }
  const EmbeddingBackwardArguments arguments{gradient_out,
                                             tokens,
                                             gradient_token_table,
                                             gradient_position_table,
                                             value_of(dropout),
                                             samples,
                                             rows,
                                             sequence,
                                             hidden,
                                             0,
                                             vocabulary};
  const auto loop = loops().embedding_backward[type];
  // Cut along columns, not rows: two rows may hold the same token.
  for_ranges(queue, hidden,
             std::max<std::int64_t>(element_grain / std::max<std::int64_t>(rows, 1), 1), 64,
             [&](std::int64_t begin, std::int64_t end) { loop(arguments, begin, end); });
}

void embedding_rows(const Queue& queue, ElementType type, const std::int64_t* tokens,
                    const void* table, std::int64_t first_token, std::int64_t table_rows, void* out,
                    std::int64_t rows, std::int64_t hidden) {
  const auto on_device = [&](const auto& place) {
    device::embedding_rows(place, type, tokens, table, first_token, table_rows, out, rows, hidden);
  };
  if (put_on_device(queue, on_device)) return;
  const std::int64_t bytes = hidden * element_bytes(type);
  for_ranges(queue, rows, row_grain(hidden), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t from = tokens[row] - first_token;
      char* to = static_cast<char*>(out) + row * bytes;
      if (from >= 0 && from < table_rows) {
        std::memcpy(to, static_cast<const char*>(table) + from * bytes,
                    static_cast<std::size_t>(bytes));
      } else {
        std::memset(to, 0, static_cast<std::size_t>(bytes));
      }
    }
  });
}

void embedding_rows_backward(const Queue& queue, ElementType type, const void* gradient_out,
                             const std::int64_t* tokens, std::int64_t first_token,
                             std::int64_t table_rows, void* gradient_table, bool accumulate,
                             std::int64_t rows, std::int64_t hidden) {
  const auto on_device = [&](const auto& place) {
    device::embedding_rows_backward(place, type, gradient_out, tokens, first_token, table_rows,
                                    gradient_table, accumulate, rows, hidden);
  };
  if (put_on_device(queue, on_device)) return;
  if (!accumulate) {
    fill_zero(queue, gradient_table, table_rows * hidden * element_bytes(accumulation_type(type)));
  }
  const EmbeddingBackwardArguments arguments{gradient_out, tokens,      gradient_table, nullptr,
                                             Dropout(),    nullptr,     rows,           rows,
                                             hidden,       first_token, table_rows};
  const auto loop = loops().embedding_backward[type];
  for_ranges(queue, hidden,
             std::max<std::int64_t>(element_grain / std::max<std::int64_t>(rows, 1), 1), 64,
             [&](std::int64_t begin, std::int64_t end) { loop(arguments, begin, end); });
}

}  // namespace garonne::kernels
