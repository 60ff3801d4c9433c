#include "kernels/gelu.hpp"

#include "kernels/cpu/loops.hpp"
#include "kernels/cpu/parallel.hpp"
#include "kernels/device/gelu.hpp"
#include "kernels/dispatch.hpp"

namespace garonne::kernels {

void gelu_forward(const Queue& queue, ElementType type, const void* x, void* y, std::int64_t n) {
  const auto on_device = [&](const auto& place) { device::gelu_forward(place, type, x, y, n); };
  if (put_on_device(queue, on_device)) return;
  const GeluArguments arguments{nullptr, x, y};
  const auto loop = loops().gelu_forward[type];
  for_ranges(queue, n, element_grain / 2, 64,
             [&](std::int64_t begin, std::int64_t end) { loop(arguments, begin, end); });
}

void gelu_backward(const Queue& queue, ElementType type, const void* gradient_y, const void* x,
                   void* gradient_x, std::int64_t n) {
  const auto on_device = [&](const auto& place) {
    device::gelu_backward(place, type, gradient_y, x, gradient_x, n);
  };
  if (put_on_device(queue, on_device)) return;
  const GeluArguments arguments{gradient_y, x, gradient_x};
  const auto loop = loops().gelu_backward[type];
  for_ranges(queue, n, element_grain / 2, 64,
             [&](std::int64_t begin, std::int64_t end) { loop(arguments, begin, end); });
}

}  // namespace garonne::kernels
