#include "kernels/row_deal.hpp"

#include "kernels/device/row_deal.hpp"
#include "kernels/dispatch.hpp"

#include <algorithm>

namespace garonne::kernels {

namespace {

// copy(element of `dealt` where a slot begins, element of `whole` where its row begins)
template <typename Copy>
void for_rows(std::span<const std::int64_t> slots, std::int64_t lines, std::int64_t rows,
              std::int64_t width, const Copy& copy) {
  const auto count = static_cast<std::int64_t>(slots.size());
  for (std::int64_t line = 0; line < lines; ++line) {
    for (std::int64_t slot = 0; slot < count; ++slot) {
      const std::int64_t row = slots[static_cast<std::size_t>(slot)];
      if (row >= 0) copy((line * count + slot) * width, (line * rows + row) * width);
    }
  }
}

}  // namespace

void gather_rows(const Queue& queue, const double* dealt, std::span<const std::int64_t> slots,
                 double* whole, std::int64_t lines, std::int64_t rows, std::int64_t width) {
  const auto on_device = [&](const auto& place) {
    device::gather_rows(place, dealt, slots, whole, lines, rows, width);
  };
  if (put_on_device(queue, on_device)) return;
  for_rows(slots, lines, rows, width, [&](std::int64_t slot, std::int64_t row) {
    std::copy_n(dealt + slot, width, whole + row);
  });
}

void deal_rows(const Queue& queue, const double* whole, std::span<const std::int64_t> slots,
               double* dealt, std::int64_t lines, std::int64_t rows, std::int64_t width) {
  const auto on_device = [&](const auto& place) {
    device::deal_rows(place, whole, slots, dealt, lines, rows, width);
  };
  if (put_on_device(queue, on_device)) return;
  for_rows(slots, lines, rows, width, [&](std::int64_t slot, std::int64_t row) {
    std::copy_n(whole + row, width, dealt + slot);
  });
}

}  // namespace garonne::kernels
