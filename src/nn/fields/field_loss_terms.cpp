#include "nn/fields/field_loss_terms.hpp"

#include <ATen/Functions.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "base/error.hpp"

namespace garonne::nn {
namespace {

// Of a relative norm, so that a field of zeros divides nothing by zero.
constexpr double relative_epsilon = 1e-8;

template <typename T>
T rounded(double value) {
  if constexpr (std::is_same_v<T, at::BFloat16>) {
    return T(static_cast<float>(value));
  } else {
    return static_cast<T>(value);
  }
}

template <typename Use>
void with_type(const at::Tensor& tensor, const Use& use) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return use(float{});
    case at::kDouble:
      return use(double{});
    default:
      return use(at::BFloat16{});
  }
}

}  // namespace

// One channel of one sample as the loss sees it: decoded.
template <typename T>
struct FieldView {
  const T* prediction;  // of point 0
  std::int64_t prediction_stride;
  const T* target;
  const T* mask;            // 0 where there is no value; null = 1
  const double* deviation;  // null = 1
  const double* mean;       // null = 0
  std::int64_t decode_stride;

  bool there(std::int64_t point) const {
    return mask == nullptr || static_cast<float>(mask[point]) != 0;
  }
  double scale(std::int64_t point) const {
    return deviation == nullptr ? 1.0 : deviation[point * decode_stride];
  }
  // These are 0 where there is no value.
  double error(std::int64_t point) const {
    if (!there(point)) return 0;
    const auto predicted = static_cast<double>(prediction[point * prediction_stride]);
    return scale(point) * (predicted - static_cast<double>(target[point]));
  }
  double wanted(std::int64_t point) const {
    if (!there(point)) return 0;
    const double shift = mean == nullptr ? 0.0 : mean[point * decode_stride];
    return scale(point) * static_cast<double>(target[point]) + shift;
  }
};

template <typename Visit>
void AxisDifference::for_terms(const Visit& visit) const {
  const auto step = static_cast<double>(count_);  // one over the spacing
  for (std::int64_t b = 0; b < before_; ++b) {
    for (std::int64_t n = 0; n < count_; ++n) {
      const std::int64_t line = (b * count_ + n) * after_;
      const auto term = [&](std::int64_t other, double factor) {
        const std::int64_t from = (b * count_ + other) * after_;
        for (std::int64_t a = 0; a < after_; ++a) visit(line + a, from + a, factor * step);
      };
      if (periodic_ || (n > 0 && n + 1 < count_)) {
        term((n + 1) % count_, 0.5);
        term((n + count_ - 1) % count_, -0.5);
        continue;
      }
      const std::int64_t inwards = n == 0 ? 1 : -1;
      const double sign = n == 0 ? 1.0 / 6 : -1.0 / 6;
      term(n, -11 * sign);
      term(n + inwards, 18 * sign);
      term(n + 2 * inwards, -9 * sign);
      term(n + 3 * inwards, 2 * sign);
    }
  }
}

void AxisDifference::apply(const double* field, double* out) const {
  std::fill(out, out + before_ * count_ * after_, 0.0);
  for_terms([&](std::int64_t row, std::int64_t column, double factor) {
    out[row] += factor * field[column];
  });
}

void AxisDifference::add_transposed(const double* field, double* out) const {
  for_terms([&](std::int64_t row, std::int64_t column, double factor) {
    out[column] += factor * field[row];
  });
}

template <typename There>
void AxisDifference::clear_incomplete(const There& there, double* out) const {
  for_terms([&](std::int64_t row, std::int64_t column, double) {
    if (!there(column)) out[row] = 0;
  });
}

FieldLossForm FieldLossTerms::form(const std::string& loss) {
  if (loss == "auto" || loss == "relative-l2") return {true, false, false, false};
  if (loss == "relative-l2-channels") return {true, true, false, false};
  if (loss == "h1") return {true, true, false, true};
  if (loss == "squared-l2") return {};
  if (loss == "area-l2") return {false, false, true, false};
  throw ConfigError("train.loss", loss,
                    "is no loss of fields; give relative-l2, relative-l2-channels, h1, squared-l2 "
                    "or area-l2");
}

FieldLossTerms::FieldLossTerms(const std::string& loss, const FieldShape& shape, std::int64_t batch,
                               std::int64_t step)
    : name_(loss),
      form_(form(loss)),
      shape_(shape),
      batch_(batch),
      step_(step),
      points_(shape.count()),
      channels_(shape.target_channels) {
  check_tables();
  if (!form_.differences) return;
  expect(!shape.rows.cut(), "differences between rows are of whole fields");
  std::int64_t before = 1;
  for (std::size_t axis = 0; axis < shape.points.size(); ++axis) {
    const std::int64_t count = shape.points[axis];
    const bool longitude = axis + 1 == shape.points.size();
    const bool periodic =
        shape.grid == "periodic" ||
        (longitude && (shape.grid == "equiangular" || shape.grid == "legendre-gauss"));
    if (count < (periodic ? 2 : 4)) {
      throw ConfigError("train.loss", loss,
                        fmt::format("wants at least {} points along every axis; there are {}",
                                    periodic ? 2 : 4, fmt::join(shape.points, " x ")));
    }
    differences_.emplace_back(before, count, points_ / (before * count), periodic);
    before *= count;
  }
}

std::string FieldLossTerms::key() const {
  const std::string mask =
      shape_.masked ? fmt::format(" mask of {}", shape_.push_forward + shape_.rollout) : "";
  return fmt::format("{} {}x{}x{} of {} {} decode {}{}", name_, batch_,
                     fmt::join(shape_.points, "x"), channels_, shape_.rollout, shape_.grid,
                     shape_.target_deviation.size(), mask);
}

at::Tensor FieldLossTerms::make_scratch(const at::Tensor& like) const {
  return at::empty({scratch_elements()}, like.options().dtype(at::kDouble));
}

double FieldLossTerms::operations() const {
  const double each =
      form_.differences ? 10.0 + 12.0 * static_cast<double>(differences_.size()) : 8.0;
  return each * static_cast<double>(batch_ * points_ * channels_);
}

double FieldLossTerms::loss(const FieldNorms& norms) const {
  if (!form_.relative) return norms.weights == 0 ? 0 : norms.error / norms.weights;
  return std::sqrt(norms.error) / (std::sqrt(norms.wanted) + relative_epsilon);
}

double FieldLossTerms::slope(const FieldNorms& norms) const {
  if (!form_.relative) return norms.weights == 0 ? 0 : 2 / norms.weights;
  if (norms.error == 0) return 0;
  return 1 / (std::sqrt(norms.error) * (std::sqrt(norms.wanted) + relative_epsilon));
}

// The points of rows that are there.
template <typename Use>
void FieldLossTerms::for_points(const Use& use) const {
  const std::int64_t in_row = points_ / shape_.points[0];
  for (std::int64_t slot = 0; slot < shape_.points[0]; ++slot) {
    if (shape_.rows.row(slot) == FieldRows::none) continue;
    for (std::int64_t p = slot * in_row; p < (slot + 1) * in_row; ++p) use(p);
  }
}

double FieldLossTerms::weight(std::int64_t point) const {
  if (!form_.area || shape_.area_weights.empty()) return 1;
  return shape_.area_weights[static_cast<std::size_t>(point / (points_ / shape_.points[0]))];
}

template <typename T>
FieldView<T> FieldLossTerms::view_of(const std::vector<at::Tensor>& inputs,
                                     std::int64_t pair) const {
  const std::int64_t sample = pair / channels_;
  const std::int64_t channel = pair % channels_;
  FieldView<T> view;
  view.prediction = inputs[0].const_data_ptr<T>() + sample * points_ * channels_ + channel;
  view.prediction_stride = channels_;
  view.target =
      inputs[1].const_data_ptr<T>() + ((step_ * batch_ + sample) * channels_ + channel) * points_;
  view.mask = nullptr;
  if (shape_.masked) {
    const std::int64_t frame = (shape_.push_forward + step_) * batch_ + sample;
    view.mask = inputs[2].const_data_ptr<T>() + (frame * channels_ + channel) * points_;
  }
  const auto count = static_cast<std::int64_t>(shape_.target_deviation.size());
  view.decode_stride = count > channels_ ? 1 : 0;
  const std::int64_t first = view.decode_stride == 1 ? channel * points_ : channel;
  view.deviation = count == 0 ? nullptr : shape_.target_deviation.data() + first;
  view.mean = shape_.target_mean.empty() ? nullptr : shape_.target_mean.data() + first;
  return view;
}

// Area weights of all rows have a mean of 1.
template <typename T>
double FieldLossTerms::sum_of_weights(const FieldView<T>& view) const {
  if (view.mask == nullptr) {
    const std::int64_t rows = shape_.rows.cut() ? shape_.rows.present() : shape_.points[0];
    return static_cast<double>(points_ / shape_.points[0] * rows);
  }
  double sum = 0;
  for_points([&](std::int64_t p) { sum += view.there(p) ? weight(p) : 0; });
  return sum;
}

template <typename T>
void FieldLossTerms::difference_of(const FieldView<T>& view, const AxisDifference& difference,
                                   const double* field, double* slope) const {
  difference.apply(field, slope);
  if (view.mask == nullptr) return;
  difference.clear_incomplete([&](std::int64_t p) { return view.there(p); }, slope);
}

template <typename T>
double FieldLossTerms::square_of_differences(const FieldView<T>& view, double* field) const {
  double* slope = field + points_;
  double sum = 0;
  for (const auto& difference : differences_) {
    difference_of(view, difference, field, slope);
    for (std::int64_t p = 0; p < points_; ++p) sum += slope[p] * slope[p];
  }
  return sum;
}

template <typename T>
FieldNorms FieldLossTerms::norms_of(const std::vector<at::Tensor>& inputs, std::int64_t group,
                                    const at::Tensor& scratch) const {
  FieldNorms norms;
  for (std::int64_t pair = group * pairs_in_group(); pair < (group + 1) * pairs_in_group();
       ++pair) {
    const FieldView<T> view = view_of<T>(inputs, pair);
    for_points([&](std::int64_t p) {
      const double error = view.error(p);
      norms.error += weight(p) * error * error;
      if (!form_.relative) return;
      const double wanted = view.wanted(p);
      norms.wanted += wanted * wanted;
    });
    norms.weights += sum_of_weights(view);
    if (!form_.differences) continue;
    double* field = scratch.data_ptr<double>();
    for (std::int64_t p = 0; p < points_; ++p) field[p] = view.error(p);
    norms.error += square_of_differences(view, field);
    for (std::int64_t p = 0; p < points_; ++p) field[p] = view.wanted(p);
    norms.wanted += square_of_differences(view, field);
  }
  return norms;
}

template <typename T>
void FieldLossTerms::write_gradient_of(const std::vector<at::Tensor>& inputs, std::int64_t pair,
                                       double slope, const at::Tensor& scratch, T* gradient) const {
  const FieldView<T> view = view_of<T>(inputs, pair);
  T* out = gradient + (view.prediction - inputs[0].const_data_ptr<T>());
  const auto write = [&](std::int64_t p, double value) {
    out[p * channels_] = view.there(p) ? rounded<T>(slope * view.scale(p) * value) : T(0);
  };
  if (!form_.differences) {
    if (shape_.rows.cut()) {
      for (std::int64_t p = 0; p < points_; ++p) out[p * channels_] = T(0);
    }
    for_points([&](std::int64_t p) { write(p, weight(p) * view.error(p)); });
    return;
  }
  double* field = scratch.data_ptr<double>();
  double* slopes = field + points_;
  double* sums = slopes + points_;
  for (std::int64_t p = 0; p < points_; ++p) field[p] = sums[p] = view.error(p);
  for (const auto& difference : differences_) {
    difference_of(view, difference, field, slopes);
    difference.add_transposed(slopes, sums);
  }
  for (std::int64_t p = 0; p < points_; ++p) write(p, sums[p]);
}

FieldNorms FieldLossTerms::norms(const std::vector<at::Tensor>& inputs, std::int64_t group,
                                 const at::Tensor& scratch) const {
  FieldNorms norms;
  with_type(inputs[0], [&]<typename T>(T) { norms = norms_of<T>(inputs, group, scratch); });
  return norms;
}

void FieldLossTerms::write_gradient(const std::vector<at::Tensor>& inputs, std::int64_t group,
                                    double slope, const at::Tensor& scratch,
                                    const at::Tensor& gradient) const {
  with_type(gradient, [&]<typename T>(T) {
    for (std::int64_t pair = group * pairs_in_group(); pair < (group + 1) * pairs_in_group();
         ++pair)
      write_gradient_of<T>(inputs, pair, slope, scratch, gradient.data_ptr<T>());
  });
}

double FieldLossTerms::mean_loss(const std::vector<at::Tensor>& inputs) const {
  const at::Tensor scratch = make_scratch(inputs[0]);
  double sum = 0;
  for (std::int64_t group = 0; group < groups(); ++group)
    sum += loss(norms(inputs, group, scratch));
  return sum / static_cast<double>(groups());
}

void FieldLossTerms::write_mean_gradient(const std::vector<at::Tensor>& inputs, double outer,
                                         const at::Tensor& gradient) const {
  const at::Tensor scratch = make_scratch(gradient);
  const double of_group = outer / static_cast<double>(groups());
  for (std::int64_t group = 0; group < groups(); ++group)
    write_gradient(inputs, group, of_group * slope(norms(inputs, group, scratch)), scratch,
                   gradient);
}

void FieldLossTerms::check_tables() const {
  const auto channels = static_cast<std::size_t>(channels_);
  const auto all = channels * static_cast<std::size_t>(points_);
  const auto fits = [&](const std::vector<double>& table) {
    return table.empty() || table.size() == channels || table.size() == all;
  };
  expect(fits(shape_.target_mean) && fits(shape_.target_deviation) &&
             (shape_.target_mean.empty() ||
              shape_.target_mean.size() == shape_.target_deviation.size()),
         "statistics of the target are by channel, or by channel and point, both alike");
  expect(shape_.area_weights.empty() ||
             shape_.area_weights.size() == static_cast<std::size_t>(shape_.points[0]),
         "area weights are one a row");
}

}  // namespace garonne::nn
