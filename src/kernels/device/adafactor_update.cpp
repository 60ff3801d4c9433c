#include "kernels/device/adafactor_update.hpp"

#include "kernels/adafactor_step.hpp"
#include "kernels/device/add_blocks.hpp"
#include "kernels/device/elementwise.hpp"
#include "kernels/device/reduction.hpp"
#include "kernels/device/single.hpp"
#include "kernels/device/spaces.hpp"
#include "kernels/device/write_parameters.hpp"

namespace garonne::kernels::device {

namespace {

KOKKOS_INLINE_FUNCTION const AdafactorRates& rates_of(const Adafactor& options) {
  return options.rates_place == nullptr ? options.rates : *options.rates_place;
}

// Where an element of a part is in the whole, and those behind it.
struct Walk {
  KOKKOS_INLINE_FUNCTION Walk(const MatrixPart& of, std::int64_t element) : part(of) {
    row_here = quotient(part.first + element, part.width);
    column_here = part.first + element - row_here * part.width;
    row = whole_index(part.row_cut, row_here);
  }
  KOKKOS_INLINE_FUNCTION std::int64_t column() const {
    return whole_index(part.column_cut, column_here);
  }
  KOKKOS_INLINE_FUNCTION void advance() {
    if (++column_here < part.width) return;
    column_here = 0;
    row = whole_index(part.row_cut, ++row_here);
  }

  const MatrixPart& part;
  std::int64_t row_here;
  std::int64_t column_here;
  std::int64_t row;
};

template <typename T>
struct Update {
  T* parameter;
  const T* row_moments;
  const T* column_moments;
  const T* gradient;
  MatrixPart part;
  Adafactor options;
  Scalar gradient_scale;
  BFloat16* copy;  // or null

  template <int count>
  KOKKOS_FUNCTION void at(std::int64_t first) const {
    const double scale = value_of(gradient_scale);
    if (!Kokkos::isfinite(scale)) return;
    const AdafactorStep<T> step(options, rates_of(options), part, scale);
    Values<T, count> p;
    Values<T, count> slopes;
    read<count>(parameter + first, p);
    read<count>(gradient + first, slopes);
    Walk walk(part, first);
    std::int64_t row = -1;
    T factor = 0;
    for (int i = 0; i < count && first + i < part.elements; ++i) {
      if (walk.row != row) {
        row = walk.row;
        factor = step.row_factor(row_moments[row], step.row_sums[row]);
      }
      const std::int64_t column = walk.column();
      const T slope = step.slope(slopes[i], p[i]);
      p[i] = step.moved(
          p[i], step.direction(slope, factor, column_moments[column], step.column_sums[column]));
      walk.advance();
    }
    write_parameters<count>(parameter, copy, first, p);
  }
};

// Rows, then columns.
template <typename T>
struct Moments {
  T* row_moments;
  T* column_moments;
  MatrixPart part;
  Adafactor options;
  Scalar gradient_scale;

  template <int count>
  KOKKOS_FUNCTION void at(std::int64_t i) const {
    static_assert(count == 1);
    if (!Kokkos::isfinite(value_of(gradient_scale))) return;
    const AdafactorStep<T> step(options, rates_of(options), part, 1.0);
    if (i < part.rows) {
      row_moments[i] = static_cast<T>(step.row_moment(row_moments[i], step.row_sums[i]));
      return;
    }
    const std::int64_t column = i - part.rows;
    column_moments[column] =
        static_cast<T>(step.column_moment(column_moments[column], step.column_sums[column]));
  }
};

// The squares of the directions of blocks of `length` elements: thread t of a team has the elements
// t, t + threads, … of its block.
template <typename T>
struct BlockSquares {
  const T* parameter;
  const T* row_moments;
  const T* column_moments;
  const T* gradient;
  MatrixPart part;
  Adafactor options;
  Scalar gradient_scale;
  std::int64_t length;
  double* sums;  // [blocks]

  template <typename Team>
  KOKKOS_FUNCTION void operator()(const Team& team, std::int64_t block) const {
    const std::int64_t begin = block * length;
    const std::int64_t end = Kokkos::min(part.elements, begin + length);
    const double scale = value_of(gradient_scale);
    const bool counts = Kokkos::isfinite(scale);
    const AdafactorStep<T> step(options, rates_of(options), part, scale);
    double* const groups = team.template shared<double>(Team::groups);
    const double total = team.template sum<double>(groups, [&](int thread) {
      double sum = 0;
      for (std::int64_t i = begin + thread; counts && i < end; i += Team::threads) {
        const Walk walk(part, i);
        const std::int64_t column = walk.column();
        const T factor = step.row_factor(row_moments[walk.row], step.row_sums[walk.row]);
        const T slope = step.slope(gradient[i], parameter[i]);
        const double direction =
            step.direction(slope, factor, column_moments[column], step.column_sums[column]);
        sum += direction * direction;
      }
      return sum;
    });
    team.each(1, [&](int) { sums[block] = total; });
  }
};

// The squares of what is given for the gradient.
template <typename T>
struct Slopes {
  const T* parameter;
  const T* gradient;
  T l2;
  Scalar gradient_scale;

  KOKKOS_INLINE_FUNCTION double square(std::int64_t i, double scale) const {
    const double slope = gradient[i] * static_cast<T>(scale) + l2 * parameter[i];
    return slope * slope;
  }
};

template <typename T>
struct RowSums {
  static constexpr int groups = 4;

  Slopes<T> slopes;
  MatrixPart part;
  double* sums;  // [part.rows]

  template <typename Team>
  KOKKOS_FUNCTION void operator()(const Team& team, std::int64_t index) const {
    const double scale = value_of(slopes.gradient_scale);
    const std::int64_t row = part.first / part.width + index;
    const std::int64_t before = row * part.width - part.first;
    const std::int64_t first = Kokkos::max<std::int64_t>(before, 0);
    const std::int64_t last = Kokkos::min(before + part.width, part.elements);
    double* const shared = team.template shared<double>(Team::groups);
    const double total = team.template sum_of<double>(
        shared, last - first, [&](std::int64_t i) { return slopes.square(first + i, scale); });
    if (!Kokkos::isfinite(scale)) return;
    team.each(1, [&](int) { sums[whole_index(part.row_cut, row)] += total; });
  }
};

// A team has 32 columns of those here: group g has the rows g, g + groups, …, and the groups are
// added in order.
template <typename T>
struct ColumnSums {
  static constexpr int groups = 16;

  Slopes<T> slopes;
  MatrixPart part;
  double* sums;  // [part.columns]

  template <typename Team>
  KOKKOS_FUNCTION void operator()(const Team& team, std::int64_t tile) const {
    const double scale = value_of(slopes.gradient_scale);
    double* const parts = team.template shared<double>(Team::threads);
    const std::int64_t first_row = part.first / part.width;
    const std::int64_t last_row = (part.first + part.elements - 1) / part.width;
    team.each(Team::threads, [&](int thread) {
      const std::int64_t column = tile * lanes_of_group + thread % lanes_of_group;
      double sum = 0;
      for (std::int64_t row = first_row + thread / lanes_of_group;
           column < part.width && row <= last_row; row += Team::groups) {
        const std::int64_t i = row * part.width - part.first + column;
        if (i >= 0 && i < part.elements) sum += slopes.square(i, scale);
      }
      parts[thread] = sum;
    });
    team.wait();
    if (!Kokkos::isfinite(scale)) return;
    team.each(lanes_of_group, [&](int lane) {
      const std::int64_t column = tile * lanes_of_group + lane;
      if (column >= part.width) return;
      double total = parts[lane];
      for (int group = 1; group < Team::groups; ++group)
        total += parts[group * lanes_of_group + lane];
      sums[whole_index(part.column_cut, column)] += total;
    });
  }
};

// Of all rows: their sums, and where the part leads their moments.
template <typename T>
struct Totals {
  static constexpr int groups = 8;

  const T* row_moments;
  MatrixPart part;
  Scalar gradient_scale;
  double* sums;  // of the first round

  template <typename Team>
  KOKKOS_FUNCTION void operator()(const Team& team, std::int64_t) const {
    double* const shared = team.template shared<double>(Team::groups);
    const double* const rows = sums + AdafactorSums::sides;
    const double slopes =
        team.template sum_of<double>(shared, part.rows, [&](std::int64_t i) { return rows[i]; });
    const double moments = team.template sum_of<double>(
        shared, part.rows, [&](std::int64_t i) { return static_cast<double>(row_moments[i]); });
    if (!Kokkos::isfinite(value_of(gradient_scale))) return;
    team.each(1, [&](int) {
      sums[AdafactorSums::slopes] += slopes;
      if (part.leads) sums[AdafactorSums::moments] += moments;
    });
  }
};

}  // namespace

void adafactor_update(const Place& place, ElementType type, void* parameter, void* row_moments,
                      void* column_moments, const void* gradient, std::int64_t n,
                      const MatrixPart& part, const Adafactor& options,
                      const Scalar& gradient_scale, void* bfloat16_copy) {
  with_wide_type_and_space(place, type, "adafactor_update", [&]<typename T>(T, const auto& space) {
    auto* const rows = static_cast<T*>(row_moments);
    auto* const columns = static_cast<T*>(column_moments);
    elementwise<pack<BFloat16>>(
        space, n,
        Update<T>{static_cast<T*>(parameter), rows, columns, static_cast<const T*>(gradient), part,
                  options, gradient_scale, static_cast<BFloat16*>(bfloat16_copy)});
    elementwise<1>(space, part.rows + part.columns,
                   Moments<T>{rows, columns, part, options, gradient_scale});
  });
}

void add_adafactor_sums(const Place& place, ElementType type, const void* parameter,
                        const void* row_moments, const void* gradient, const MatrixPart& part,
                        const Adafactor& options, const Scalar& gradient_scale, double* sums) {
  if (part.elements <= 0) return;
  add_sum_of_squares(place, type, parameter, part.elements, sums + AdafactorSums::parameter);
  with_wide_type_and_space(
      place, type, "add_adafactor_sums", [&]<typename T>(T, const auto& space) {
        const Slopes<T> slopes{static_cast<const T*>(parameter), static_cast<const T*>(gradient),
                               static_cast<T>(options.l2), gradient_scale};
        double* const of_rows = sums + AdafactorSums::sides;
        const std::int64_t first_row = part.first / part.width;
        const std::int64_t last_row = (part.first + part.elements - 1) / part.width;
        for_teams<RowSums<T>::groups>(space, last_row - first_row + 1,
                                      shared_bytes<double>(RowSums<T>::groups),
                                      RowSums<T>{slopes, part, of_rows});
        constexpr int threads = ColumnSums<T>::groups * lanes_of_group;
        for_teams<ColumnSums<T>::groups>(space, (part.width + lanes_of_group - 1) / lanes_of_group,
                                         shared_bytes<double>(threads),
                                         ColumnSums<T>{slopes, part, of_rows + part.rows});
        for_teams<Totals<T>::groups>(
            space, 1, shared_bytes<double>(Totals<T>::groups),
            Totals<T>{static_cast<const T*>(row_moments), part, gradient_scale, sums});
      });
}

void add_adafactor_squares(const Place& place, ElementType type, const void* parameter,
                           const void* row_moments, const void* column_moments,
                           const void* gradient, const MatrixPart& part, const Adafactor& options,
                           const Scalar& gradient_scale, double* total) {
  if (part.elements <= 0) return;
  const std::int64_t length = squares_block(part.elements);
  const std::int64_t blocks = (part.elements + length - 1) / length;
  Adafactor own = options;
  own.squares = nullptr;
  with_wide_type_and_space(
      place, type, "add_adafactor_squares", [&]<typename T>(T, const auto& space) {
        add_sum_of_blocks(
            space, blocks,
            BlockSquares<T>{static_cast<const T*>(parameter), static_cast<const T*>(row_moments),
                            static_cast<const T*>(column_moments), static_cast<const T*>(gradient),
                            part, own, gradient_scale, length, place.scratch},
            place.scratch, total);
      });
}

}  // namespace garonne::kernels::device
