// A channel of a sample as losses of fields see it, on a device; private to this room.
#pragma once

#include "kernels/device/runs.hpp"
#include "kernels/ensemble_score.hpp"
#include "kernels/field_loss.hpp"
#include "kernels/with_type.hpp"

#include <cstdint>

namespace garonne::kernels::device {

// FieldComparison without what points to the host's memory.
template <typename T>
struct FieldsOnDevice {
  static constexpr std::size_t most_axes = 4;

  explicit FieldsOnDevice(const FieldComparison& fields)
      : prediction(static_cast<const T*>(fields.prediction)),
        target(static_cast<const T*>(fields.target) +
               fields.target_step * fields.batch * fields.channels * fields.points),
        mask(fields.mask == nullptr
                 ? nullptr
                 : static_cast<const T*>(fields.mask) +
                       fields.mask_step * fields.batch * fields.channels * fields.points),
        members(fields.members),
        points(fields.points),
        channels(fields.channels),
        deviation(fields.deviation),
        mean(fields.mean),
        decodes_by_point(fields.decodes_by_point),
        counted(static_cast<double>(points_of(fields.runs))),
        row_weights(fields.row_weights),
        points_in_row(fields.points_in_row),
        axes(static_cast<std::int64_t>(fields.differences.size())),
        pairs_in_group(fields.pairs_in_group),
        relative(fields.relative),
        runs(run_list(fields.runs)) {
    expect(fields.differences.size() <= most_axes, "differences along more than four axes");
    std::copy(fields.differences.begin(), fields.differences.end(), differences);
  }

  const T* prediction;
  const T* target;
  const T* mask;
  std::int64_t members;
  std::int64_t points;
  std::int64_t channels;
  const double* deviation;
  const double* mean;
  bool decodes_by_point;
  double counted;
  const double* row_weights;
  std::int64_t points_in_row;
  std::int64_t axes;
  AxisDifference differences[most_axes];
  std::int64_t pairs_in_group;
  bool relative;
  RunList runs;
};

template <typename T>
class PairOnDevice {
 public:
  KOKKOS_FUNCTION PairOnDevice(const FieldsOnDevice<T>& fields, std::int64_t pair)
      : fields_(fields), pair_(pair), channel_(pair % fields.channels) {}

  KOKKOS_FUNCTION bool there(std::int64_t point) const {
    return fields_.mask == nullptr ||
           static_cast<float>(load(fields_.mask[pair_ * fields_.points + point])) != 0;
  }
  KOKKOS_FUNCTION double scale(std::int64_t point) const {
    return fields_.deviation == nullptr ? 1.0 : fields_.deviation[decode(point)];
  }
  KOKKOS_FUNCTION double weight(std::int64_t point) const {
    return fields_.row_weights == nullptr ? 1.0
                                          : fields_.row_weights[point / fields_.points_in_row];
  }
  // Of the prediction and of its gradient.
  KOKKOS_FUNCTION std::int64_t place(std::int64_t point, std::int64_t member = 0) const {
    const std::int64_t field = pair_ / fields_.channels * fields_.members + member;
    return (field * fields_.points + point) * fields_.channels + channel_;
  }
  // These are 0 where there is no value.
  KOKKOS_FUNCTION double error(std::int64_t point, std::int64_t member = 0) const {
    if (!there(point)) return 0;
    return scale(point) *
           (static_cast<double>(load(fields_.prediction[place(point, member)])) - target(point));
  }
  // What a point adds to the error of its group, and half the derivative of that by the member's
  // decoded value.
  KOKKOS_FUNCTION double term(std::int64_t point) const {
    if (fields_.members > 1) {
      return fair_crps(fields_.members, [&](std::int64_t member) { return error(point, member); });
    }
    const double one = error(point);
    return one * one;
  }
  KOKKOS_FUNCTION double half_slope(std::int64_t point, std::int64_t member) const {
    if (fields_.members > 1) {
      return 0.5 * fair_crps_slope(fields_.members, member,
                                   [&](std::int64_t other) { return error(point, other); });
    }
    return error(point);
  }
  KOKKOS_FUNCTION double wanted(std::int64_t point) const {
    if (!there(point)) return 0;
    const double shift = fields_.mean == nullptr ? 0.0 : fields_.mean[decode(point)];
    return scale(point) * target(point) + shift;
  }

  // Of the error, or of the wanted field; 0 where a point that it needs is not there.
  KOKKOS_FUNCTION double difference(const AxisDifference& axis, bool of_error,
                                    std::int64_t point) const {
    double sum = 0;
    bool complete = true;
    const std::int64_t n = point / axis.after % axis.count;
    for_terms(axis, n, [&](std::int64_t other, double factor) {
      const std::int64_t from = point + (other - n) * axis.after;
      if (!there(from)) complete = false;
      sum += factor * (of_error ? error(from) : wanted(from));
    });
    return complete ? sum : 0;
  }

  // What the errors' differences have of a point: the transposed matrix on the differences.
  KOKKOS_FUNCTION double transposed_differences(const AxisDifference& axis, double sum,
                                                std::int64_t point) const {
    const std::int64_t n = point / axis.after % axis.count;
    const auto add_row = [&](std::int64_t row) {
      const std::int64_t at = point + (row - n) * axis.after;
      for_terms(axis, row, [&](std::int64_t other, double factor) {
        if (other == n) sum += factor * difference(axis, true, at);
      });
    };
    // Rows that may have the point, in their order: the ends, and the neighbours.
    const std::int64_t last = axis.count - 1;
    std::int64_t before = n - 1;
    std::int64_t behind = n + 1;
    if (axis.periodic) {
      before = (n + last) % axis.count;
      behind = (n + 1) % axis.count;
      if (before > behind) {
        const std::int64_t smaller = behind;
        behind = before;
        before = smaller;
      }
    }
    std::int64_t done = -1;
    const auto add_once = [&](std::int64_t row) {
      if (row <= done || row > last) return;
      add_row(row);
      done = row;
    };
    add_once(0);
    add_once(before);
    add_once(behind);
    add_once(last);
    return sum;
  }

 private:
  KOKKOS_FUNCTION std::int64_t decode(std::int64_t point) const {
    return fields_.decodes_by_point ? channel_ * fields_.points + point : channel_;
  }
  KOKKOS_FUNCTION double target(std::int64_t point) const {
    return static_cast<double>(load(fields_.target[pair_ * fields_.points + point]));
  }

  // visit(number along the axis, factor) for the nonzero elements of a row of the matrix.
  template <typename Visit>
  KOKKOS_FUNCTION static void for_terms(const AxisDifference& axis, std::int64_t n,
                                        const Visit& visit) {
    const auto step = static_cast<double>(axis.count);  // one over the spacing
    if (axis.periodic || (n > 0 && n + 1 < axis.count)) {
      visit((n + 1) % axis.count, 0.5 * step);
      visit((n + axis.count - 1) % axis.count, -0.5 * step);
      return;
    }
    const std::int64_t inwards = n == 0 ? 1 : -1;
    const double sign = n == 0 ? 1.0 / 6 : -1.0 / 6;
    visit(n, -11 * sign * step);
    visit(n + inwards, 18 * sign * step);
    visit(n + 2 * inwards, -9 * sign * step);
    visit(n + 3 * inwards, 2 * sign * step);
  }

  const FieldsOnDevice<T>& fields_;
  std::int64_t pair_;
  std::int64_t channel_;
};

}  // namespace garonne::kernels::device
