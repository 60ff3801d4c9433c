#include "kernels/rotary.hpp"

#include "kernels/cpu/loops.hpp"
#include "kernels/cpu/parallel.hpp"
#include "kernels/device/rotary.hpp"
#include "kernels/dispatch.hpp"

#include <cmath>

namespace garonne::kernels {

std::vector<float> rotary_table(std::int64_t sequence, std::int64_t head_size, double theta) {
  const std::int64_t half = head_size / 2;
  std::vector<float> table(static_cast<std::size_t>(sequence * head_size));
  for (std::int64_t i = 0; i < half; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(head_size);
    const float frequency = 1.0F / std::pow(static_cast<float>(theta), exponent);
    for (std::int64_t position = 0; position < sequence; ++position) {
      const float angle = static_cast<float>(position) * frequency;
      const auto at = static_cast<std::size_t>(position * head_size + i);
      table[at] = static_cast<float>(std::cos(static_cast<double>(angle)));
      table[at + static_cast<std::size_t>(half)] =
          static_cast<float>(std::sin(static_cast<double>(angle)));
    }
  }
  return table;
}

void rotate_heads(const Queue& queue, ElementType type, const void* x, const float* table, void* y,
                  const RotaryHeads& heads, bool back, std::int64_t rows, std::int64_t sequence) {
  const auto on_device = [&](const auto& place) {
    device::rotate_heads(place, type, x, table, y, heads, back, rows, sequence);
  };
  if (put_on_device(queue, on_device)) return;
  const RotaryArguments arguments{x, table, y, heads, back, sequence};
  const auto loop = loops().rotate_heads[type];
  for_ranges(queue, rows, row_grain(heads.width()), 1,
             [&](std::int64_t begin, std::int64_t end) { loop(arguments, begin, end); });
}

}  // namespace garonne::kernels
