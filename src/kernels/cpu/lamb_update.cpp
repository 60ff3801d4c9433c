#include "kernels/lamb_update.hpp"

#include "base/error.hpp"
#include "kernels/cpu/loops.hpp"
#include "kernels/cpu/parallel.hpp"
#include "kernels/cpu/scalar_value.hpp"
#include "kernels/device/lamb_update.hpp"
#include "kernels/dispatch.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace garonne::kernels {
namespace {

Lamb with_rates(Lamb options) {
  if (options.rates_place != nullptr) options.rates = *options.rates_place;
  return options;
}

}  // namespace

void lamb_update(const Queue& queue, ElementType type, void* parameter, void* first_moment,
                 void* second_moment, const void* gradient, std::int64_t n, const Lamb& options,
                 const Scalar& gradient_scale, void* bfloat16_copy) {
  const auto on_device = [&](const auto& place) {
    device::lamb_update(place, type, parameter, first_moment, second_moment, gradient, n, options,
                        gradient_scale, bfloat16_copy);
  };
  if (put_on_device(queue, on_device)) return;
  const auto loop = (*loops().lamb)[type];
  expect(loop != nullptr, "lamb_update wants Float32 or Float64 parameters");
  const double scale = value_of(gradient_scale);
  if (!std::isfinite(scale)) return;
  const LambArguments arguments{parameter,           first_moment, second_moment, gradient,
                                with_rates(options), scale,        bfloat16_copy};
  for_ranges(queue, n, element_grain / 2, 64,
             [&](std::int64_t begin, std::int64_t end) { loop(arguments, begin, end); });
}

void add_lamb_squares(const Queue& queue, ElementType type, const void* parameter,
                      const void* first_moment, const void* second_moment, const void* gradient,
                      std::int64_t n, const Lamb& options, const Scalar& gradient_scale,
                      double* total) {
  const auto on_device = [&](const auto& place) {
    device::add_lamb_squares(place, type, parameter, first_moment, second_moment, gradient, n,
                             options, gradient_scale, total);
  };
  if (put_on_device(queue, on_device)) return;
  const auto loop = (*loops().lamb_squares)[type];
  expect(loop != nullptr, "add_lamb_squares wants Float32 or Float64 parameters");
  const double scale = value_of(gradient_scale);
  if (!std::isfinite(scale)) return;
  // Block sums live on the stack: the kernels allocate nothing.
  constexpr std::int64_t blocks_at_once = 512;
  std::array<double, blocks_at_once> sums{};
  double sum = 0;
  for (std::int64_t first = 0; first < n; first += blocks_at_once * sum_block) {
    const std::int64_t count = std::min(n - first, blocks_at_once * sum_block);
    const std::int64_t blocks = (count + sum_block - 1) / sum_block;
    const auto from = [&](const void* values) {
      return static_cast<const char*>(values) + first * element_bytes(type);
    };
    const LambSquaresArguments arguments{from(parameter), from(first_moment),  from(second_moment),
                                         from(gradient),  with_rates(options), scale,
                                         count,           sums.data()};
    for_ranges(queue, blocks, 1, 1,
               [&](std::int64_t begin, std::int64_t end) { loop(arguments, begin, end); });
    for (std::int64_t block = 0; block < blocks; ++block)
      sum += sums[static_cast<std::size_t>(block)];
  }
  *total += sum;
}

}  // namespace garonne::kernels
