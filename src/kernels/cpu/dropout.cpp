#include "kernels/dropout.hpp"

#include "kernels/cpu/loops.hpp"
#include "kernels/cpu/parallel.hpp"
#include "kernels/cpu/scalar_value.hpp"
#include "kernels/device/dropout.hpp"
#include "kernels/dispatch.hpp"

namespace garonne::kernels {

void dropout_add(const Queue& queue, ElementType type, const void* residual, const void* x,
                 void* out, const Dropout& dropout, const std::int64_t* samples,
                 std::int64_t elements, std::int64_t elements_per_sample) {
  const auto on_device = [&](const auto& place) {
    device::dropout_add(place, type, residual, x, out, dropout, samples, elements,
                        elements_per_sample);
  };
  if (put_on_device(queue, on_device)) return;
  const DropoutArguments arguments{residual,          x,       out,
                                   value_of(dropout), samples, elements_per_sample};
  const auto loop = loops().dropout_add[type];
  for_ranges(queue, elements, element_grain, 64,
             [&](std::int64_t begin, std::int64_t end) { loop(arguments, begin, end); });
}

}  // namespace garonne::kernels
