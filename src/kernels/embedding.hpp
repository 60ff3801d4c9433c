// Token plus position embedding, with dropout on the sum.
#pragma once

#include "kernels/dropout.hpp"
#include "kernels/element_type.hpp"

#include <cstdint>

namespace garonne::kernels {

// out = dropout(token_table[tokens] + position_table[position]). Tokens are not checked against the
// vocabulary. The element index for dropout runs over [sequence, hidden] of one sample.
void embedding_forward(ElementType type,
                       const std::int64_t* tokens,  // [batch, sequence]
                       const void* token_table,     // T [vocabulary, hidden]
                       const void* position_table,  // T [>= sequence, hidden]
                       void* out,                   // T [batch, sequence, hidden]
                       const Dropout& dropout,
                       const std::int64_t* samples,  // [batch], may be null when dropout is off
                       std::int64_t batch, std::int64_t sequence, std::int64_t hidden);

// Contributions to one element are added in order of (sample, position), whatever the threads.
// Without accumulation a table is zeroed first, rows that nothing adds to included. Either table
// may be null.
void embedding_backward(ElementType type,
                        const void* gradient_out,    // T [batch, sequence, hidden]
                        const std::int64_t* tokens,  // [batch, sequence]
                        void* gradient_token_table,  // G [vocabulary, hidden] or null
                        bool accumulate_token_table,
                        void* gradient_position_table,  // G [positions, hidden] or null
                        bool accumulate_position_table, const Dropout& dropout,
                        const std::int64_t* samples,  // [batch], may be null when dropout is off
                        std::int64_t batch, std::int64_t sequence, std::int64_t hidden,
                        std::int64_t vocabulary, std::int64_t positions);  // positions >= sequence

}  // namespace garonne::kernels
