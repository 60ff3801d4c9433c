#include "kernels/rms_norm.hpp"

#include "kernels/cpu/loops.hpp"
#include "kernels/cpu/parallel.hpp"
#include "kernels/device/rms_norm.hpp"
#include "kernels/dispatch.hpp"
#include "kernels/row_partitions.hpp"

#include <algorithm>

namespace garonne::kernels {

void rms_norm_forward(const Queue& queue, ElementType type, const void* x, const void* gain,
                      double epsilon, void* y, void* inverse, std::int64_t rows,
                      std::int64_t hidden) {
  const auto on_device = [&](const auto& place) {
    device::rms_norm_forward(place, type, x, gain, epsilon, y, inverse, rows, hidden);
  };
  if (put_on_device(queue, on_device)) return;
  const RmsNormForwardArguments arguments{x, gain, epsilon, y, inverse, hidden};
  const auto loop = loops().rms_norm_forward[type];
  for_ranges(queue, rows, row_grain(hidden), 1,
             [&](std::int64_t begin, std::int64_t end) { loop(arguments, begin, end); });
}

std::int64_t rms_norm_workspace_bytes(ElementType type, std::int64_t rows, std::int64_t hidden) {
  return row_partitions(rows) * hidden * element_bytes(accumulation_type(type));
}

void rms_norm_backward(const Queue& queue, ElementType type, const void* gradient_y, const void* x,
                       const void* gain, const void* inverse, void* gradient_x, bool accumulate_x,
                       void* gradient_gain, bool accumulate_gain, void* workspace,
                       std::int64_t rows, std::int64_t hidden) {
  const auto on_device = [&](const auto& place) {
    device::rms_norm_backward(place, type, gradient_y, x, gain, inverse, gradient_x, accumulate_x,
                              gradient_gain, accumulate_gain, workspace, rows, hidden);
  };
  if (put_on_device(queue, on_device)) return;
  const bool with_gain = gradient_gain != nullptr;
  if (!with_gain && gradient_x == nullptr) return;
  const std::int64_t partitions = row_partitions(rows);
  const RmsNormBackwardArguments arguments{
      gradient_y, x,    gain,  inverse, gradient_x, accumulate_x, with_gain ? workspace : nullptr,
      partitions, rows, hidden};
  const auto loop = loops().rms_norm_backward[type];
  const std::int64_t partition_rows = std::max<std::int64_t>(rows / partitions, 1);
  for_ranges(queue, partitions, std::max<std::int64_t>(row_grain(hidden) / partition_rows, 1), 1,
             [&](std::int64_t begin, std::int64_t end) { loop(arguments, begin, end); });
  if (!with_gain) return;
  const auto sum_loop = loops().column_sum[accumulation_type(type)];
  const ColumnSumArguments columns{workspace,  gradient_gain, accumulate_gain,
                                   partitions, hidden,        hidden};
  for_ranges(queue, hidden, std::max<std::int64_t>(element_grain / partitions, 64), 64,
             [&](std::int64_t begin, std::int64_t end) { sum_loop(columns, begin, end); });
}

}  // namespace garonne::kernels
