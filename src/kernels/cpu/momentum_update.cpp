#include "kernels/momentum_update.hpp"

#include "base/error.hpp"
#include "kernels/cpu/loops.hpp"
#include "kernels/cpu/parallel.hpp"
#include "kernels/cpu/scalar_value.hpp"
#include "kernels/device/momentum_update.hpp"
#include "kernels/dispatch.hpp"

#include <cmath>

namespace garonne::kernels {

void momentum_update(const Queue& queue, ElementType type, void* parameter, void* moment,
                     const void* gradient, std::int64_t n, const Momentum& options,
                     const Scalar& learning_rate, const Scalar& gradient_scale,
                     void* bfloat16_copy) {
  const auto on_device = [&](const auto& place) {
    device::momentum_update(place, type, parameter, moment, gradient, n, options, learning_rate,
                            gradient_scale, bfloat16_copy);
  };
  if (put_on_device(queue, on_device)) return;
  const auto loop = (*loops().momentum)[type];
  expect(loop != nullptr, "momentum_update wants Float32 or Float64 parameters");
  const double scale = value_of(gradient_scale);
  if (!std::isfinite(scale)) return;
  const MomentumArguments arguments{
      parameter, moment, gradient, options, value_of(learning_rate), scale, bfloat16_copy};
  for_ranges(queue, n, element_grain / 2, 64,
             [&](std::int64_t begin, std::int64_t end) { loop(arguments, begin, end); });
}

}  // namespace garonne::kernels
