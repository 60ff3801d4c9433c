// Weights of causal attention with dropout, for a few rows of queries at a time: products are made
// beside, and of no sequence is every score in memory at once.
#pragma once

#include "base/device.hpp"
#include "kernels/dropout.hpp"
#include "kernels/element_type.hpp"

#include <cstdint>

namespace garonne::kernels {

// The queries first_row … first_row + rows - 1 of some samples and heads. Each sees the keys up to
// its own, so matrices of the tile have as many columns as its last row sees keys: first_row +
// rows.
struct AttentionTile {
  std::int64_t samples = 0;
  std::int64_t heads = 0;       // of each sample
  std::int64_t first_head = 0;  // among all heads of the model, which masks go by
  std::int64_t rows = 0;
  std::int64_t first_row = 0;
  std::int64_t sequence = 0;  // rows of a whole sample
  double scale = 1;           // of products of queries and keys, > 0
};

// scores [samples, heads, rows, columns], products of queries and keys, become the weights of the
// values: softmax over the keys that a row sees, of which dropout leaves some, scaled, and makes 0
// of the others; 0 beyond. log_sums [samples, heads, sequence]: those of the tile's rows become the
// logarithms of the sums of exponentials.
//
// The mask of key c for query r of head h of sample s is that of element (h · sequence + r) ·
// sequence + c of s, as in kernels::Dropout; `samples` [samples] may be null where dropout is off.
// first_element of `dropout` is not used. type is Float32 or Float64 (InternalError otherwise).
void attention_weights(const Queue& queue, ElementType type, const AttentionTile& tile,
                       void* scores, void* log_sums, const Dropout& dropout,
                       const std::int64_t* samples);

// What attention_weights() makes of scores, again, from the log_sums that it made; and `gradient`
// [samples, heads, rows, columns], of those weights, becomes that of the products.
void attention_weights_gradient(const Queue& queue, ElementType type, const AttentionTile& tile,
                                void* scores, void* gradient, const void* log_sums,
                                const Dropout& dropout, const std::int64_t* samples);

}  // namespace garonne::kernels
