// Token plus position embedding, with dropout on the sum.
#pragma once

#include "base/device.hpp"
#include "kernels/dropout.hpp"
#include "kernels/element_type.hpp"

#include <cstdint>

namespace garonne::kernels {

// out = dropout(token_table[tokens] + position_table[position]). Tokens are not checked against the
// vocabulary. The element index for dropout runs over [sequence, hidden] of one sample. `rows` are
// whole samples, or a piece of them that begins at element dropout.first_element, a multiple of
// hidden.
void embedding_forward(const Queue& queue, ElementType type,
                       const std::int64_t* tokens,  // [rows], null: the numbers of the rows
                       const void* token_table,     // T [vocabulary, hidden]
                       const void* position_table,  // T [>= sequence, hidden]
                       void* out,                   // T [rows, hidden]
                       const Dropout& dropout,
                       const std::int64_t* samples,  // [batch], may be null when dropout is off
                       std::int64_t rows, std::int64_t sequence, std::int64_t hidden);

// Contributions to one element are added in order of (sample, position), whatever the threads.
// Without accumulation a table is zeroed first, rows that nothing adds to included. Either table
// may be null.
void embedding_backward(const Queue& queue, ElementType type,
                        const void* gradient_out,    // T [rows, hidden]
                        const std::int64_t* tokens,  // [rows], null without a token table
                        void* gradient_token_table,  // G [vocabulary, hidden] or null
                        bool accumulate_token_table,
                        void* gradient_position_table,  // G [positions, hidden] or null
                        bool accumulate_position_table, const Dropout& dropout,
                        const std::int64_t* samples,  // [batch], may be null when dropout is off
                        std::int64_t rows, std::int64_t sequence, std::int64_t hidden,
                        std::int64_t vocabulary, std::int64_t positions);  // positions >= sequence

// The piece of a table that has rows first_token … first_token + table_rows - 1: out = table[token
// - first_token], zeros for tokens outside. The sum over all pieces is the lookup.
void embedding_rows(const Queue& queue, ElementType type,
                    const std::int64_t* tokens,  // [rows]
                    const void* table,           // T [table_rows, hidden]
                    std::int64_t first_token, std::int64_t table_rows,
                    void* out,  // T [rows, hidden]
                    std::int64_t rows, std::int64_t hidden);

// Adds the rows of tokens inside the piece, in row order; without accumulation the gradient is
// zeroed first.
void embedding_rows_backward(const Queue& queue, ElementType type,
                             const void* gradient_out,    // T [rows, hidden]
                             const std::int64_t* tokens,  // [rows]
                             std::int64_t first_token, std::int64_t table_rows,
                             void* gradient_table,  // G [table_rows, hidden]
                             bool accumulate, std::int64_t rows, std::int64_t hidden);

}  // namespace garonne::kernels
