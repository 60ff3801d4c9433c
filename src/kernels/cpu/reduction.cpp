#include "kernels/reduction.hpp"

#include "base/error.hpp"
#include "kernels/cpu/loops.hpp"
#include "kernels/cpu/parallel.hpp"
#include "kernels/device/reduction.hpp"
#include "kernels/dispatch.hpp"

#include <array>

namespace garonne::kernels {

void add_sum_of_squares(const Queue& queue, ElementType type, const void* values, std::int64_t n,
                        double* total) {
  const auto on_device = [&](const auto& place) {
    device::add_sum_of_squares(place, type, values, n, total);
  };
  if (put_on_device(queue, on_device)) return;
  const auto loop = loops().sum_of_squares[type];
  expect(loop != nullptr, "add_sum_of_squares wants Float32 or Float64");
  // Block sums live on the stack: the kernels allocate nothing.
  constexpr std::int64_t blocks_at_once = 512;
  std::array<double, blocks_at_once> sums{};
  double sum = 0;
  for (std::int64_t first = 0; first < n; first += blocks_at_once * sum_block) {
    const std::int64_t count = std::min(n - first, blocks_at_once * sum_block);
    const std::int64_t blocks = (count + sum_block - 1) / sum_block;
    const SumOfSquaresArguments arguments{
        static_cast<const char*>(values) + first * element_bytes(type), count, sums.data()};
    for_ranges(queue, blocks, 1, 1,
               [&](std::int64_t begin, std::int64_t end) { loop(arguments, begin, end); });
    for (std::int64_t block = 0; block < blocks; ++block)
      sum += sums[static_cast<std::size_t>(block)];
  }
  *total += sum;
}

void add_into(const Queue& queue, ElementType type, void* destination, const void* source,
              std::int64_t n) {
  const auto on_device = [&](const auto& place) {
    device::add_into(place, type, destination, source, n);
  };
  if (put_on_device(queue, on_device)) return;
  const CombineArguments arguments{source, destination, true};
  const auto loop = loops().add_into[type];
  for_ranges(queue, n, 2 * element_grain, 64,
             [&](std::int64_t begin, std::int64_t end) { loop(arguments, begin, end); });
}

}  // namespace garonne::kernels
