#include "kernels/swiglu.hpp"

#include "kernels/cpu/loops.hpp"
#include "kernels/cpu/parallel.hpp"
#include "kernels/device/swiglu.hpp"
#include "kernels/dispatch.hpp"

namespace garonne::kernels {

void swiglu_forward(const Queue& queue, ElementType type, const void* x, void* y, std::int64_t rows,
                    std::int64_t inner) {
  const auto on_device = [&](const auto& place) {
    device::swiglu_forward(place, type, x, y, rows, inner);
  };
  if (put_on_device(queue, on_device)) return;
  const SwigluArguments arguments{nullptr, x, y, inner};
  const auto loop = loops().swiglu_forward[type];
  for_ranges(queue, rows, row_grain(2 * inner), 1,
             [&](std::int64_t begin, std::int64_t end) { loop(arguments, begin, end); });
}

void swiglu_backward(const Queue& queue, ElementType type, const void* gradient_y, const void* x,
                     void* gradient_x, std::int64_t rows, std::int64_t inner) {
  const auto on_device = [&](const auto& place) {
    device::swiglu_backward(place, type, gradient_y, x, gradient_x, rows, inner);
  };
  if (put_on_device(queue, on_device)) return;
  const SwigluArguments arguments{gradient_y, x, gradient_x, inner};
  const auto loop = loops().swiglu_backward[type];
  for_ranges(queue, rows, row_grain(2 * inner), 1,
             [&](std::int64_t begin, std::int64_t end) { loop(arguments, begin, end); });
}

}  // namespace garonne::kernels
