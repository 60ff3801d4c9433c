#include "kernels/scalar.hpp"

#include "kernels/cpu/expect_host.hpp"
#include "kernels/cpu/scalar_value.hpp"

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

}  // namespace garonne::kernels
