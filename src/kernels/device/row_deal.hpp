// kernels/row_deal.hpp on a device.
#pragma once

#include "kernels/device/place.hpp"

#include <cstdint>
#include <span>

namespace garonne::kernels::device {

void gather_rows(const Place& place, const double* dealt, std::span<const std::int64_t> slots,
                 double* whole, std::int64_t lines, std::int64_t rows, std::int64_t width);

void deal_rows(const Place& place, const double* whole, std::span<const std::int64_t> slots,
               double* dealt, std::int64_t lines, std::int64_t rows, std::int64_t width);

}  // namespace garonne::kernels::device
