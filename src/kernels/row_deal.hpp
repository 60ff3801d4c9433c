// Rows of whole fields, and the same rows dealt out in slots.
#pragma once

#include "base/device.hpp"

#include <cstdint>
#include <span>

namespace garonne::kernels {

// Row slots[s] of every line of `whole` = slot s of that line of `dealt`, for the slots that have a
// row (>= 0). Other rows are left as they are.
void gather_rows(const Queue& queue,
                 const double* dealt,                  // [lines, slots, width]
                 std::span<const std::int64_t> slots,  // a row, or negative: none
                 double* whole,                        // [lines, rows, width]
                 std::int64_t lines, std::int64_t rows, std::int64_t width);

// The other way; slots without a row are left as they are.
void deal_rows(const Queue& queue,
               const double* whole,                  // [lines, rows, width]
               std::span<const std::int64_t> slots,  // a row, or negative: none
               double* dealt,                        // [lines, slots, width]
               std::int64_t lines, std::int64_t rows, std::int64_t width);

}  // namespace garonne::kernels
