#include "kernels/adafactor_update.hpp"

#include "base/error.hpp"
#include "kernels/cpu/loops.hpp"
#include "kernels/cpu/parallel.hpp"
#include "kernels/cpu/scalar_value.hpp"
#include "kernels/device/adafactor_update.hpp"
#include "kernels/dispatch.hpp"
#include "kernels/reduction.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace garonne::kernels {
namespace {

Adafactor with_rates(Adafactor options) {
  if (options.rates_place != nullptr) options.rates = *options.rates_place;
  return options;
}

const AdafactorLoops& loops_of(ElementType type, const char* what) {
  expect(type != ElementType::BFloat16, std::string(what) + " wants Float32 or Float64 parameters");
  return *loops().adafactor;
}

// Where elements of the padding alone are here, there are none.
std::int64_t rows_here(const MatrixPart& part) {
  return (part.first + part.elements - 1) / part.width - part.first / part.width + 1;
}

}  // namespace

void adafactor_update(const Queue& queue, ElementType type, void* parameter, void* row_moments,
                      void* column_moments, const void* gradient, std::int64_t n,
                      const MatrixPart& part, const Adafactor& options,
                      const Scalar& gradient_scale, void* bfloat16_copy) {
  const auto on_device = [&](const auto& place) {
    device::adafactor_update(place, type, parameter, row_moments, column_moments, gradient, n, part,
                             options, gradient_scale, bfloat16_copy);
  };
  if (put_on_device(queue, on_device)) return;
  const AdafactorLoops& loops = loops_of(type, "adafactor_update");
  const double scale = value_of(gradient_scale);
  if (!std::isfinite(scale)) return;
  const Adafactor own = with_rates(options);
  const AdafactorArguments arguments{parameter, row_moments, column_moments, gradient,
                                     part,      own,         scale,          bfloat16_copy};
  for_ranges(queue, n, element_grain / 2, 64, [&](std::int64_t begin, std::int64_t end) {
    loops.update[type](arguments, begin, end);
  });
  for (const bool of_rows : {true, false}) {
    const AdafactorMomentsArguments moments{of_rows ? row_moments : column_moments, of_rows, part,
                                            own};
    for_ranges(
        queue, of_rows ? part.rows : part.columns, element_grain, 64,
        [&](std::int64_t begin, std::int64_t end) { loops.moments[type](moments, begin, end); });
  }
}

void add_adafactor_sums(const Queue& queue, ElementType type, const void* parameter,
                        const void* row_moments, const void* gradient, const MatrixPart& part,
                        const Adafactor& options, const Scalar& gradient_scale, double* sums) {
  const auto on_device = [&](const auto& place) {
    device::add_adafactor_sums(place, type, parameter, row_moments, gradient, part, options,
                               gradient_scale, sums);
  };
  if (put_on_device(queue, on_device)) return;
  const AdafactorLoops& loops = loops_of(type, "add_adafactor_sums");
  const double scale = value_of(gradient_scale);
  if (!std::isfinite(scale) || part.elements <= 0) return;
  add_sum_of_squares(queue, type, parameter, part.elements, sums + AdafactorSums::parameter);
  double* const of_rows = sums + AdafactorSums::sides;
  AdafactorSumsArguments arguments{parameter, gradient, part, options.l2, scale, of_rows};
  for_ranges(
      queue, rows_here(part), row_grain(part.width), 8,
      [&](std::int64_t begin, std::int64_t end) { loops.rows[type](arguments, begin, end); });
  arguments.sums = of_rows + part.rows;
  for_ranges(
      queue, part.width, row_grain(rows_here(part)), 8,
      [&](std::int64_t begin, std::int64_t end) { loops.columns[type](arguments, begin, end); });
  loops.sum[ElementType::Float64]({of_rows, sums + AdafactorSums::slopes}, 0, part.rows);
  if (part.leads) loops.sum[type]({row_moments, sums + AdafactorSums::moments}, 0, part.rows);
}

void add_adafactor_squares(const Queue& queue, ElementType type, const void* parameter,
                           const void* row_moments, const void* column_moments,
                           const void* gradient, const MatrixPart& part, const Adafactor& options,
                           const Scalar& gradient_scale, double* total) {
  const auto on_device = [&](const auto& place) {
    device::add_adafactor_squares(place, type, parameter, row_moments, column_moments, gradient,
                                  part, options, gradient_scale, total);
  };
  if (put_on_device(queue, on_device)) return;
  const AdafactorLoops& loops = loops_of(type, "add_adafactor_squares");
  const double scale = value_of(gradient_scale);
  if (!std::isfinite(scale)) return;
  Adafactor own = with_rates(options);
  own.squares = nullptr;
  // Block sums live on the stack: the kernels allocate nothing.
  constexpr std::int64_t blocks_at_once = 512;
  std::array<double, blocks_at_once> sums{};
  double sum = 0;
  for (std::int64_t first = 0; first < part.elements; first += blocks_at_once * sum_block) {
    const std::int64_t count = std::min(part.elements - first, blocks_at_once * sum_block);
    const std::int64_t blocks = (count + sum_block - 1) / sum_block;
    const AdafactorSquaresArguments arguments{
        parameter, row_moments, column_moments, gradient, part, own, scale, first, sums.data()};
    for_ranges(queue, blocks, 1, 1, [&](std::int64_t begin, std::int64_t end) {
      loops.squares[type](arguments, begin, end);
    });
    for (std::int64_t block = 0; block < blocks; ++block)
      sum += sums[static_cast<std::size_t>(block)];
  }
  *total += sum;
}

}  // namespace garonne::kernels
