#include "kernels/layer_norm.hpp"

#include "base/error.hpp"
#include "kernels/cpu/loops.hpp"
#include "kernels/cpu/parallel.hpp"
#include "kernels/device/layer_norm.hpp"
#include "kernels/dispatch.hpp"
#include "kernels/row_partitions.hpp"

#include <algorithm>

namespace garonne::kernels {

void layer_norm_forward(const Queue& queue, ElementType type, const void* x, const void* gain,
                        const void* bias, double epsilon, void* y, void* mean,
                        void* inverse_deviation, std::int64_t rows, std::int64_t hidden) {
  const auto on_device = [&](const auto& place) {
    device::layer_norm_forward(place, type, x, gain, bias, epsilon, y, mean, inverse_deviation,
                               rows, hidden);
  };
  if (put_on_device(queue, on_device)) return;
  const LayerNormForwardArguments arguments{x,     gain, bias, epsilon, y, mean, inverse_deviation,
                                            hidden};
  const auto loop = loops().layer_norm_forward[type];
  for_ranges(queue, rows, row_grain(hidden), 1,
             [&](std::int64_t begin, std::int64_t end) { loop(arguments, begin, end); });
}

std::int64_t layer_norm_workspace_bytes(ElementType type, std::int64_t rows, std::int64_t hidden) {
  return row_partitions(rows) * 2 * hidden * element_bytes(accumulation_type(type));
}

void layer_norm_backward(const Queue& queue, ElementType type, const void* gradient_y,
                         const void* x, const void* gain, const void* mean,
                         const void* inverse_deviation, void* gradient_x, bool accumulate_x,
                         void* gradient_gain, void* gradient_bias, bool accumulate_parameters,
                         void* workspace, std::int64_t rows, std::int64_t hidden) {
  const auto on_device = [&](const auto& place) {
    device::layer_norm_backward(place, type, gradient_y, x, gain, mean, inverse_deviation,
                                gradient_x, accumulate_x, gradient_gain, gradient_bias,
                                accumulate_parameters, workspace, rows, hidden);
  };
  if (put_on_device(queue, on_device)) return;
  expect((gradient_gain == nullptr) == (gradient_bias == nullptr),
         "layer_norm_backward wants both parameter gradients or none");
  const bool with_parameters = gradient_gain != nullptr;
  if (!with_parameters && gradient_x == nullptr) return;
  const std::int64_t partitions = row_partitions(rows);
  const LayerNormBackwardArguments arguments{
      gradient_y,        x,          gain,         mean,
      inverse_deviation, gradient_x, accumulate_x, with_parameters ? workspace : nullptr,
      partitions,        rows,       hidden};
  const auto loop = loops().layer_norm_backward[type];
  const std::int64_t partition_rows = std::max<std::int64_t>(rows / partitions, 1);
  for_ranges(queue, partitions, std::max<std::int64_t>(row_grain(hidden) / partition_rows, 1), 1,
             [&](std::int64_t begin, std::int64_t end) { loop(arguments, begin, end); });
  if (!with_parameters) return;
  const ElementType sums = accumulation_type(type);
  const auto sum_loop = loops().column_sum[sums];
  const char* partial = static_cast<const char*>(workspace);
  for (const bool is_bias : {false, true}) {
    const ColumnSumArguments columns{partial + (is_bias ? hidden * element_bytes(sums) : 0),
                                     is_bias ? gradient_bias : gradient_gain,
                                     accumulate_parameters,
                                     partitions,
                                     hidden,
                                     2 * hidden};
    for_ranges(queue, hidden, std::max<std::int64_t>(element_grain / partitions, 64), 64,
               [&](std::int64_t begin, std::int64_t end) { sum_loop(columns, begin, end); });
  }
}

}  // namespace garonne::kernels
