#include "kernels/convert.hpp"

#include "kernels/cpu/loops.hpp"
#include "kernels/cpu/parallel.hpp"
#include "kernels/device/convert.hpp"
#include "kernels/dispatch.hpp"

namespace garonne::kernels {

void to_bfloat16(const Queue& queue, const float* source, void* destination, std::int64_t n) {
  const auto on_device = [&](const auto& place) {
    device::to_bfloat16(place, source, destination, n);
  };
  if (put_on_device(queue, on_device)) return;
  const CombineArguments arguments{source, destination, false};
  const auto loop = loops().to_bfloat16[ElementType::Float32];
  for_ranges(queue, n, 2 * element_grain, 64,
             [&](std::int64_t begin, std::int64_t end) { loop(arguments, begin, end); });
}

void accumulate_from(const Queue& queue, ElementType type, const void* source, void* destination,
                     std::int64_t n, bool accumulate) {
  const auto on_device = [&](const auto& place) {
    device::accumulate_from(place, type, source, destination, n, accumulate);
  };
  if (put_on_device(queue, on_device)) return;
  const CombineArguments arguments{source, destination, accumulate};
  const auto loop = loops().accumulate_from[type];
  for_ranges(queue, n, 2 * element_grain, 64,
             [&](std::int64_t begin, std::int64_t end) { loop(arguments, begin, end); });
}

}  // namespace garonne::kernels
