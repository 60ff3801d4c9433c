// kernels/embedding.hpp on a device; the same bits as on CPUs.
#pragma once

#include "kernels/device/place.hpp"
#include "kernels/dropout.hpp"
#include "kernels/element_type.hpp"

#include <cstdint>

namespace garonne::kernels::device {

// With dropout both use the scratch of the place.
void embedding_forward(const Place& place, ElementType type, const std::int64_t* tokens,
                       const void* token_table, const void* position_table, void* out,
                       const Dropout& dropout, const std::int64_t* samples, std::int64_t rows,
                       std::int64_t sequence, std::int64_t hidden);

// The rows of a token are found where it comes first: a team looks through all tokens and adds up
// its rows in their order. Nothing is sorted, nothing is atomic.
void embedding_backward(const Place& place, ElementType type, const void* gradient_out,
                        const std::int64_t* tokens, void* gradient_token_table,
                        bool accumulate_token_table, void* gradient_position_table,
                        bool accumulate_position_table, const Dropout& dropout,
                        const std::int64_t* samples, std::int64_t rows, std::int64_t sequence,
                        std::int64_t hidden, std::int64_t vocabulary, std::int64_t positions);

void embedding_rows(const Place& place, ElementType type, const std::int64_t* tokens,
                    const void* table, std::int64_t first_token, std::int64_t table_rows, void* out,
                    std::int64_t rows, std::int64_t hidden);

void embedding_rows_backward(const Place& place, ElementType type, const void* gradient_out,
                             const std::int64_t* tokens, std::int64_t first_token,
                             std::int64_t table_rows, void* gradient_table, bool accumulate,
                             std::int64_t rows, std::int64_t hidden);

}  // namespace garonne::kernels::device
