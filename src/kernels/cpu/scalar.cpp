#include "kernels/scalar.hpp"

#include "kernels/cpu/scalar_value.hpp"
#include "kernels/device/scalar.hpp"
#include "kernels/dispatch.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace garonne::kernels {

void mean_of(const Queue& queue, std::span<const Scalar> numbers, double* mean) {
  const auto on_device = [&](const auto& place) { device::mean_of(place, numbers, mean); };
  if (put_on_device(queue, on_device)) return;
  double sum = 0;
  for (const Scalar& number : numbers) sum += value_of(number);
  *mean = sum / static_cast<double>(numbers.size());
}

void mean_of_gradient(const Queue& queue, const Scalar& outer, std::int64_t count,
                      double* gradient) {
  const auto on_device = [&](const auto& place) {
    device::mean_of_gradient(place, outer, count, gradient);
  };
  if (put_on_device(queue, on_device)) return;
  *gradient = value_of(outer) / static_cast<double>(count);
}

void add_scaled(const Queue& queue, const Scalar& number, double factor, double* sum) {
  const auto on_device = [&](const auto& place) { device::add_scaled(place, number, factor, sum); };
  if (put_on_device(queue, on_device)) return;
  *sum += value_of(number) * factor;
}

void clip_scale(const Queue& queue, const double* loss, const double* squares, double clip_norm,
                double* norm, double* scale) {
  const auto on_device = [&](const auto& place) {
    device::clip_scale(place, loss, squares, clip_norm, norm, scale);
  };
  if (put_on_device(queue, on_device)) return;
  *norm = std::sqrt(*squares);
  if (!std::isfinite(*loss) || !std::isfinite(*norm)) {
    *scale = std::numeric_limits<double>::quiet_NaN();
    return;
  }
  // The same small number as PyTorch's clip_grad_norm_ adds, so that both clip alike.
  *scale = clip_norm <= 0 ? 1.0 : std::min(1.0, clip_norm / (*norm + 1e-6));
}

}  // namespace garonne::kernels
