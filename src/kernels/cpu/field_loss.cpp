#include "kernels/field_loss.hpp"

#include "kernels/cpu/axis_difference.hpp"
#include "kernels/cpu/scalar_value.hpp"
#include "kernels/device/field_loss.hpp"
#include "kernels/dispatch.hpp"
#include "kernels/ensemble_score.hpp"
#include "kernels/with_type.hpp"

#include <algorithm>
#include <cmath>

namespace garonne::kernels {

namespace {

// Of a relative norm, so that a field of zeros divides nothing by zero.
constexpr double relative_epsilon = 1e-8;

struct Norms {
  double error = 0;
  double wanted = 0;
  double weights = 0;
};

double loss_of(const Norms& norms, bool relative) {
  if (!relative) return norms.weights == 0 ? 0 : norms.error / norms.weights;
  return std::sqrt(norms.error) / (std::sqrt(norms.wanted) + relative_epsilon);
}

// Twice the derivative of a group's loss by the square of its error.
double slope_of(const Norms& norms, bool relative) {
  if (!relative) return norms.weights == 0 ? 0 : 2 / norms.weights;
  if (norms.error == 0) return 0;
  return 1 / (std::sqrt(norms.error) * (std::sqrt(norms.wanted) + relative_epsilon));
}

// A pair as the loss sees it: decoded.
template <typename T>
class Pair {
 public:
  Pair(const FieldComparison& fields, std::int64_t pair) : fields_(fields) {
    const std::int64_t sample = pair / fields.channels;
    const std::int64_t channel = pair % fields.channels;
    field_ = fields.points * fields.channels;
    first_ = sample * fields.members * field_ + channel;
    prediction_ = static_cast<const T*>(fields.prediction) + first_;
    const auto in_step = [&](const void* tensor, std::int64_t step) {
      const std::int64_t place = (step * fields.batch + sample) * fields.channels + channel;
      return static_cast<const T*>(tensor) + place * fields.points;
    };
    target_ = in_step(fields.target, fields.target_step);
    mask_ = fields.mask == nullptr ? nullptr : in_step(fields.mask, fields.mask_step);
    decode_stride_ = fields.decodes_by_point ? 1 : 0;
    const std::int64_t decode = fields.decodes_by_point ? channel * fields.points : channel;
    deviation_ = fields.deviation == nullptr ? nullptr : fields.deviation + decode;
    mean_ = fields.mean == nullptr ? nullptr : fields.mean + decode;
  }

  // Where the pair of a member begins in the prediction and in its gradient.
  std::int64_t first(std::int64_t member) const { return first_ + member * field_; }
  bool masked() const { return mask_ != nullptr; }

  bool there(std::int64_t point) const {
    return mask_ == nullptr || static_cast<float>(load(mask_[point])) != 0;
  }
  double scale(std::int64_t point) const {
    return deviation_ == nullptr ? 1.0 : deviation_[point * decode_stride_];
  }
  double weight(std::int64_t point) const {
    return fields_.row_weights == nullptr ? 1.0
                                          : fields_.row_weights[point / fields_.points_in_row];
  }
  // These are 0 where there is no value.
  double error(std::int64_t point, std::int64_t member = 0) const {
    if (!there(point)) return 0;
    const std::int64_t place = member * field_ + point * fields_.channels;
    const auto predicted = static_cast<double>(load(prediction_[place]));
    return scale(point) * (predicted - static_cast<double>(load(target_[point])));
  }
  // What a point adds to the error of its group, and half the derivative of that by the member's
  // decoded value.
  double term(std::int64_t point) const {
    if (fields_.members > 1) return fair_crps(fields_.members, errors_at(point));
    const double one = error(point);
    return one * one;
  }
  double half_slope(std::int64_t point, std::int64_t member) const {
    if (fields_.members > 1)
      return 0.5 * fair_crps_slope(fields_.members, member, errors_at(point));
    return error(point);
  }
  double wanted(std::int64_t point) const {
    if (!there(point)) return 0;
    const double shift = mean_ == nullptr ? 0.0 : mean_[point * decode_stride_];
    return scale(point) * static_cast<double>(load(target_[point])) + shift;
  }

  // The points that count.
  template <typename Use>
  void for_points(const Use& use) const {
    for (const PointRun& run : fields_.runs) {
      for (std::int64_t p = run.first; p < run.first + run.count; ++p) use(p);
    }
  }

  // Weights of all rows have a mean of 1.
  double sum_of_weights() const {
    if (!masked()) {
      std::int64_t points = 0;
      for (const PointRun& run : fields_.runs) points += run.count;
      return static_cast<double>(points);
    }
    double sum = 0;
    for_points([&](std::int64_t p) { sum += there(p) ? weight(p) : 0; });
    return sum;
  }

  void difference_of(const AxisDifference& axis, const double* field, double* slope) const {
    apply_difference(axis, field, slope);
    if (masked())
      clear_incomplete(
          axis, [&](std::int64_t p) { return there(p); }, slope);
  }

 private:
  auto errors_at(std::int64_t point) const {
    return [this, point](std::int64_t member) { return error(point, member); };
  }

  const FieldComparison& fields_;
  std::int64_t field_;  // elements of a member
  std::int64_t first_;
  const T* prediction_;
  const T* target_;
  const T* mask_;
  const double* deviation_;
  const double* mean_;
  std::int64_t decode_stride_;
};

template <typename T>
double square_of_differences(const FieldComparison& fields, const Pair<T>& pair) {
  double* const field = fields.scratch;
  double* const slope = field + fields.points;
  double sum = 0;
  for (const AxisDifference& axis : fields.differences) {
    pair.difference_of(axis, field, slope);
    for (std::int64_t p = 0; p < fields.points; ++p) sum += slope[p] * slope[p];
  }
  return sum;
}

template <typename T>
Norms norms_of(const FieldComparison& fields, std::int64_t group) {
  Norms norms;
  const std::int64_t first = group * fields.pairs_in_group;
  for (std::int64_t number = first; number < first + fields.pairs_in_group; ++number) {
    const Pair<T> pair(fields, number);
    pair.for_points([&](std::int64_t p) {
      norms.error += pair.weight(p) * pair.term(p);
      if (!fields.relative) return;
      const double wanted = pair.wanted(p);
      norms.wanted += wanted * wanted;
    });
    norms.weights += pair.sum_of_weights();
    if (fields.differences.empty()) continue;
    double* const field = fields.scratch;
    for (std::int64_t p = 0; p < fields.points; ++p) field[p] = pair.error(p);
    norms.error += square_of_differences(fields, pair);
    for (std::int64_t p = 0; p < fields.points; ++p) field[p] = pair.wanted(p);
    norms.wanted += square_of_differences(fields, pair);
  }
  return norms;
}

// Of one pair of a member: `slope` times the error as the square weights it, or half the slope of
// the score; 0 at points that do not count.
template <typename T>
void write_gradient(const FieldComparison& fields, std::int64_t number, std::int64_t member,
                    double slope, T* gradient) {
  const Pair<T> pair(fields, number);
  T* const out = gradient + pair.first(member);
  const auto write = [&](std::int64_t p, double value) {
    store_double(out[p * fields.channels], pair.there(p) ? slope * pair.scale(p) * value : 0.0);
  };
  if (fields.differences.empty()) {
    std::int64_t end = 0;
    const auto clear_to = [&](std::int64_t next) {
      for (; end < next; ++end) store_double(out[end * fields.channels], 0.0);
    };
    for (const PointRun& run : fields.runs) {
      clear_to(run.first);
      end = run.first + run.count;
    }
    clear_to(fields.points);
    pair.for_points([&](std::int64_t p) { write(p, pair.weight(p) * pair.half_slope(p, member)); });
    return;
  }
  double* const field = fields.scratch;
  double* const slopes = field + fields.points;
  double* const sums = slopes + fields.points;
  for (std::int64_t p = 0; p < fields.points; ++p) field[p] = sums[p] = pair.error(p);
  for (const AxisDifference& axis : fields.differences) {
    pair.difference_of(axis, field, slopes);
    add_transposed_difference(axis, slopes, sums);
  }
  for (std::int64_t p = 0; p < fields.points; ++p) write(p, sums[p]);
}

template <typename T>
void write_group(const FieldComparison& fields, std::int64_t group, double slope, void* gradient) {
  const std::int64_t first = group * fields.pairs_in_group;
  for (std::int64_t pair = first; pair < first + fields.pairs_in_group; ++pair) {
    for (std::int64_t member = 0; member < fields.members; ++member)
      write_gradient(fields, pair, member, slope, static_cast<T*>(gradient));
  }
}

// In the order of the members.
Norms norms_of(const GatheredNorms& gathered, std::int64_t group) {
  Norms norms;
  for (std::int64_t member = 0; member < gathered.members; ++member) {
    const double* const sums = gathered.norms + 3 * member * gathered.groups + group;
    norms.error += sums[0];
    norms.wanted += sums[gathered.groups];
    norms.weights += sums[2 * gathered.groups];
  }
  return norms;
}

}  // namespace

void field_norms(const Queue& queue, const FieldComparison& fields, double* norms) {
  const auto on_device = [&](const auto& place) { device::field_norms(place, fields, norms); };
  if (put_on_device(queue, on_device)) return;
  const std::int64_t groups = fields.groups();
  with_type(fields.type, [&]<typename T>(T) {
    for (std::int64_t group = 0; group < groups; ++group) {
      const Norms sums = norms_of<T>(fields, group);
      norms[group] = sums.error;
      norms[groups + group] = sums.wanted;
      norms[2 * groups + group] = sums.weights;
    }
  });
}

void field_norms_gradient(const Queue& queue, const FieldComparison& fields,
                          const double* gradient_errors, void* gradient_prediction) {
  const auto on_device = [&](const auto& place) {
    device::field_norms_gradient(place, fields, gradient_errors, gradient_prediction);
  };
  if (put_on_device(queue, on_device)) return;
  with_type(fields.type, [&]<typename T>(T) {
    for (std::int64_t group = 0; group < fields.groups(); ++group)
      write_group<T>(fields, group, 2 * gradient_errors[group], gradient_prediction);
  });
}

void field_loss(const Queue& queue, const FieldComparison& fields, double* loss) {
  const auto on_device = [&](const auto& place) { device::field_loss(place, fields, loss); };
  if (put_on_device(queue, on_device)) return;
  double sum = 0;
  with_type(fields.type, [&]<typename T>(T) {
    for (std::int64_t group = 0; group < fields.groups(); ++group)
      sum += loss_of(norms_of<T>(fields, group), fields.relative);
  });
  *loss = sum / static_cast<double>(fields.groups());
}

void field_loss_gradient(const Queue& queue, const FieldComparison& fields, const Scalar& outer,
                         void* gradient_prediction) {
  const auto on_device = [&](const auto& place) {
    device::field_loss_gradient(place, fields, outer, gradient_prediction);
  };
  if (put_on_device(queue, on_device)) return;
  const double of_group = value_of(outer) / static_cast<double>(fields.groups());
  with_type(fields.type, [&]<typename T>(T) {
    for (std::int64_t group = 0; group < fields.groups(); ++group) {
      const double slope = slope_of(norms_of<T>(fields, group), fields.relative);
      write_group<T>(fields, group, of_group * slope, gradient_prediction);
    }
  });
}

void gathered_field_loss(const Queue& queue, const GatheredNorms& gathered, double* loss) {
  const auto on_device = [&](const auto& place) {
    device::gathered_field_loss(place, gathered, loss);
  };
  if (put_on_device(queue, on_device)) return;
  double sum = 0;
  for (std::int64_t group = 0; group < gathered.groups; ++group)
    sum += loss_of(norms_of(gathered, group), gathered.relative);
  *loss = sum / static_cast<double>(gathered.groups);
}

void gathered_field_loss_gradient(const Queue& queue, const GatheredNorms& gathered,
                                  const Scalar& outer, double* gradient_norms) {
  const auto on_device = [&](const auto& place) {
    device::gathered_field_loss_gradient(place, gathered, outer, gradient_norms);
  };
  if (put_on_device(queue, on_device)) return;
  const std::int64_t groups = gathered.groups;
  const double of_group = value_of(outer) / static_cast<double>(groups);
  std::fill_n(gradient_norms, gathered.members * 3 * groups, 0.0);
  for (std::int64_t group = 0; group < groups; ++group) {
    const double by_error = of_group * slope_of(norms_of(gathered, group), gathered.relative) / 2;
    for (std::int64_t member = 0; member < gathered.members; ++member)
      gradient_norms[3 * member * groups + group] = by_error;
  }
}

}  // namespace garonne::kernels
