#include "kernels/bias.hpp"

#include "kernels/cpu/loops.hpp"
#include "kernels/cpu/parallel.hpp"
#include "kernels/device/bias.hpp"
#include "kernels/dispatch.hpp"

namespace garonne::kernels {

void add_bias(const Queue& queue, ElementType type, void* y, const void* bias, std::int64_t rows,
              std::int64_t n) {
  const auto on_device = [&](const auto& place) {
    device::add_bias(place, type, y, bias, rows, n);
  };
  if (put_on_device(queue, on_device)) return;
  const AddBiasArguments arguments{y, bias, n};
  const auto loop = loops().add_bias[type];
  for_ranges(queue, rows, row_grain(n), 1,
             [&](std::int64_t begin, std::int64_t end) { loop(arguments, begin, end); });
}

void bias_gradient(const Queue& queue, ElementType type, const void* gradient_y,
                   void* gradient_bias, bool accumulate, std::int64_t rows, std::int64_t n) {
  const auto on_device = [&](const auto& place) {
    device::bias_gradient(place, type, gradient_y, gradient_bias, accumulate, rows, n);
  };
  if (put_on_device(queue, on_device)) return;
  const ColumnSumArguments arguments{gradient_y, gradient_bias, accumulate, rows, n, n};
  const auto loop = loops().column_sum[type];
  for_ranges(queue, n, row_grain(rows), 64,
             [&](std::int64_t begin, std::int64_t end) { loop(arguments, begin, end); });
}

}  // namespace garonne::kernels
