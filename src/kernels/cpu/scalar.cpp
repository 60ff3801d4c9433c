#include "kernels/scalar.hpp"

#include "kernels/cpu/expect_host.hpp"
#include "kernels/cpu/scalar_value.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace garonne::kernels {

void mean_of(const Queue& queue, std::span<const Scalar> numbers, double* mean) {
  expect_host(queue);
  double sum = 0;
  for (const Scalar& number : numbers) sum += value_of(number);
  *mean = sum / static_cast<double>(numbers.size());
}

void mean_of_gradient(const Queue& queue, const Scalar& outer, std::int64_t count,
                      double* gradient) {
  expect_host(queue);
  *gradient = value_of(outer) / static_cast<double>(count);
}

void add_scaled(const Queue& queue, const Scalar& number, double factor, double* sum) {
  expect_host(queue);
  *sum += value_of(number) * factor;
}

void clip_scale(const Queue& queue, const double* loss, const double* squares, double clip_norm,
                double* norm, double* scale) {
  expect_host(queue);
  *norm = std::sqrt(*squares);
  if (!std::isfinite(*loss) || !std::isfinite(*norm)) {
    *scale = std::numeric_limits<double>::quiet_NaN();
    return;
  }
  // The same small number as PyTorch's clip_grad_norm_ adds, so that both clip alike.
  *scale = clip_norm <= 0 ? 1.0 : std::min(1.0, clip_norm / (*norm + 1e-6));
}

}  // namespace garonne::kernels
