#include "kernels/optimizer_update.hpp"

#include "base/error.hpp"
#include "kernels/cpu/loops.hpp"
#include "kernels/cpu/parallel.hpp"
#include "kernels/cpu/scalar_value.hpp"
#include "kernels/device/optimizer_update.hpp"
#include "kernels/dispatch.hpp"

#include <cmath>

namespace garonne::kernels {

AdamWRates adamw_rates(const AdamW& options) {
  return {.learning_rate = options.learning_rate,
          .step_size = options.learning_rate / options.bias_correction1,
          .root = 1.0 / std::sqrt(options.bias_correction2)};
}

void adamw_update(const Queue& queue, ElementType type, void* parameter, void* first_moment,
                  void* second_moment, const void* gradient, std::int64_t n, const AdamW& options,
                  const Scalar& gradient_scale, void* bfloat16_copy) {
  const auto on_device = [&](const auto& place) {
    device::adamw_update(place, type, parameter, first_moment, second_moment, gradient, n, options,
                         gradient_scale, bfloat16_copy);
  };
  if (put_on_device(queue, on_device)) return;
  const auto loop = (*loops().adamw)[type];
  expect(loop != nullptr, "adamw_update wants Float32 or Float64 parameters");
  expect(!options.pairs || n % 2 == 0, "half of a complex number is left over");
  const double scale = value_of(gradient_scale);
  if (!std::isfinite(scale)) return;
  const AdamWRates rates = options.rates == nullptr ? adamw_rates(options) : *options.rates;
  const AdamWArguments arguments{parameter, first_moment, second_moment, gradient,
                                 options,   rates,        scale,         bfloat16_copy};
  for_ranges(queue, n, element_grain / 2, 64,
             [&](std::int64_t begin, std::int64_t end) { loop(arguments, begin, end); });
}

}  // namespace garonne::kernels
