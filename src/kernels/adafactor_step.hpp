// The arithmetic of Adafactor on one element; as adamw_step.hpp, it is compiled without contraction
// of products and sums. Private to this room.
#pragma once

#include "kernels/adafactor_update.hpp"
#include "kernels/element.hpp"

#include <cmath>

namespace garonne::kernels {

// Short divisions are much faster than long ones.
GARONNE_INLINE std::int64_t quotient(std::int64_t a, std::int64_t b) {
  if (((a | b) >> 32) == 0)
    return static_cast<std::int64_t>(static_cast<std::uint32_t>(a) / static_cast<std::uint32_t>(b));
  return a / b;
}

// Of the whole, by index here.
GARONNE_INLINE std::int64_t whole_index(const SideCut& cut, std::int64_t index) {
  if (index < cut.run) return cut.start + index;
  const std::int64_t runs = quotient(index, cut.run);
  return runs * cut.stride + cut.start + index - runs * cut.run;
}

// The factors of an update; `options` has the rates by value. Without options.squares it is of
// directions alone.
template <typename T>
struct AdafactorStep {
  GARONNE_INLINE AdafactorStep(const Adafactor& options, const AdafactorRates& rates,
                               const MatrixPart& part, double gradient_scale)
      : scale(static_cast<T>(gradient_scale)),
        l2(static_cast<T>(options.l2)),
        kept(rates.kept),
        added(rates.added),
        epsilon(options.square_epsilon),
        rows(static_cast<double>(part.rows)),
        columns(static_cast<double>(part.columns)),
        row_sums(options.sums + AdafactorSums::sides),
        column_sums(row_sums + part.rows) {
    const double of_slopes = options.sums[AdafactorSums::slopes] / columns + rows * epsilon;
    mean = (kept * options.sums[AdafactorSums::moments] + added * of_slopes) / rows;
    if (options.squares == nullptr) return;
    const double elements = rows * columns;
    double step = rates.learning_rate;
    if (options.smallest_scale > 0.0) {
      const double size = std::sqrt(options.sums[AdafactorSums::parameter] / elements);
      step *= size > options.smallest_scale ? size : options.smallest_scale;
    }
    const double length = std::sqrt(*options.squares / elements);
    if (options.update_limit > 0.0 && length > options.update_limit)
      step *= options.update_limit / length;
    rate = static_cast<T>(step);
    decay = static_cast<T>(1.0 - rates.learning_rate * options.weight_decay);
  }

  GARONNE_INLINE T slope(T gradient, T parameter) const {
    return gradient * scale + l2 * parameter;
  }
  // Those of this step.
  GARONNE_INLINE double row_moment(T before, double sum) const {
    return kept * static_cast<double>(before) + added * (sum / columns + epsilon);
  }
  GARONNE_INLINE double column_moment(T before, double sum) const {
    return kept * static_cast<double>(before) + added * (sum / rows + epsilon);
  }
  // What the slopes of a row are multiplied with.
  GARONNE_INLINE T row_factor(T before, double sum) const {
    return static_cast<T>(1.0 / std::sqrt(row_moment(before, sum) / mean));
  }
  GARONNE_INLINE T direction(T slope, T row, T column_before, double column_sum) const {
    return slope * row / std::sqrt(static_cast<T>(column_moment(column_before, column_sum)));
  }
  GARONNE_INLINE T moved(T parameter, T direction) const {
    return parameter * decay - rate * direction;
  }

  T scale;
  T l2;
  T rate = 0;
  T decay = 1;
  double kept;
  double added;
  double epsilon;
  double rows;
  double columns;
  double mean = 1.0;
  const double* row_sums;
  const double* column_sums;
};

}  // namespace garonne::kernels
