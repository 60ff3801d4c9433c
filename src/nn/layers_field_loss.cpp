// Losses of predicted fields. Sums are in float64 whatever the compute type.
#include <ATen/Functions.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <functional>
#include <numeric>
#include <type_traits>

#include "base/error.hpp"
#include "nn/element_type.hpp"
#include "nn/field_layers.hpp"
#include "nn/node_operations.hpp"

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

// Differences along one axis of a grid: out (+)= D · field, or Dᵀ · field.
class AxisDifference {
 public:
  AxisDifference(std::int64_t before, std::int64_t count, std::int64_t after, bool periodic)
      : before_(before), count_(count), after_(after), periodic_(periodic) {}

  void apply(const double* field, double* out) const {
    std::fill(out, out + before_ * count_ * after_, 0.0);
    for_terms([&](std::int64_t row, std::int64_t column, double factor) {
      out[row] += factor * field[column];
    });
  }
  void add_transposed(const double* field, double* out) const {
    for_terms([&](std::int64_t row, std::int64_t column, double factor) {
      out[column] += factor * field[row];
    });
  }
  // Makes 0 what `out` = D · field has from points that are not there.
  template <typename There>
  void clear_incomplete(const There& there, double* out) const {
    for_terms([&](std::int64_t row, std::int64_t column, double) {
      if (!there(column)) out[row] = 0;
    });
  }

 private:
  // The nonzero elements of D.
  template <typename Visit>
  void for_terms(const Visit& visit) const {
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

  std::int64_t before_;
  std::int64_t count_;
  std::int64_t after_;
  bool periodic_;
};

struct LossForm {
  bool relative = false;
  bool by_channel = false;   // of relative norms
  bool area = false;         // rows count by their area
  bool differences = false;  // H1
};

LossForm form_of(const std::string& loss) {
  if (loss == "auto" || loss == "relative-l2") return {true, false, false, false};
  if (loss == "relative-l2-channels") return {true, true, false, false};
  if (loss == "h1") return {true, true, false, true};
  if (loss == "squared-l2") return {};
  if (loss == "area-l2") return {false, false, true, false};
  throw ConfigError("train.loss", loss,
                    "is no loss of fields; give relative-l2, relative-l2-channels, h1, squared-l2 "
                    "or area-l2");
}

class FieldLoss : public Node {
 public:
  FieldLoss(const std::string& loss, const FieldShape& shape, std::int64_t batch, std::int64_t step)
      : name_(loss),
        form_(form_of(loss)),
        shape_(shape),
        batch_(batch),
        step_(step),
        points_(shape.count()),
        channels_(shape.target_channels) {
    check_tables();
    if (!form_.differences) return;
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

  plan::NodeSpec declare(const Declaration& declaration) const override {
    plan::NodeSpec spec;
    spec.kind = "field_loss";
    spec.cost_key = fmt::format("field_loss {} {}x{}x{} of {} {} decode {}{}", name_, batch_,
                                fmt::join(shape_.points, "x"), channels_, shape_.rollout,
                                shape_.grid, shape_.target_deviation.size(),
                                shape_.masked ? fmt::format(" mask of {}", steps()) : "");
    spec.gradient_aliases.assign(shape_.masked ? 3 : 2, false);
    spec.pins_inputs.assign(spec.gradient_aliases.size(), true);
    spec.forward.transient_bytes = spec.forward_keep.transient_bytes =
        spec.backward.transient_bytes = declaration.allocation(scratch_elements() * 8);
    const double elements = static_cast<double>(batch_ * points_ * channels_);
    const double each =
        form_.differences ? 10.0 + 12.0 * static_cast<double>(differences_.size()) : 8.0;
    set_operations(spec, each * elements, 2 * each * elements);
    return spec;
  }

  at::Tensor forward(const Context&, const std::vector<at::Tensor>& inputs,
                     const std::vector<at::Tensor>&, Record*) const override {
    at::Tensor loss = at::empty({}, inputs[0].options().dtype(at::kDouble));
    const at::Tensor scratch = make_scratch(inputs[0]);
    double sum = 0;
    with_type(inputs[0], [&]<typename T>(T) {
      for (std::int64_t group = 0; group < groups(); ++group)
        sum += of_group(norms_of<T>(inputs, group, scratch));
    });
    loss.fill_(sum / static_cast<double>(groups()));
    return loss;
  }

  std::vector<at::Tensor> backward(const Context&, BackwardArguments& arguments) const override {
    const double outer = arguments.output_gradient.defined()
                             ? arguments.output_gradient.item<double>()
                             : arguments.loss_scale;
    at::Tensor gradient = at::empty_like(arguments.inputs[0]);
    const at::Tensor scratch = make_scratch(gradient);
    with_type(gradient, [&]<typename T>(T) {
      for (std::int64_t group = 0; group < groups(); ++group) {
        const Norms norms = norms_of<T>(arguments.inputs, group, scratch);
        const double slope = outer / static_cast<double>(groups()) * slope_of_group(norms);
        for (std::int64_t pair = group * pairs_in_group(); pair < (group + 1) * pairs_in_group();
             ++pair) {
          write_gradient<T>(arguments.inputs, pair, slope, scratch, gradient.data_ptr<T>());
        }
      }
    });
    std::vector<at::Tensor> gradients(arguments.inputs.size());
    gradients[0] = gradient;
    return gradients;
  }

 private:
  // Squares of the error and of the wanted field, summed over a group, and the weights of its
  // points.
  struct Norms {
    double error = 0;
    double wanted = 0;
    double weights = 0;
  };

  template <typename Use>
  static void with_type(const at::Tensor& tensor, const Use& use) {
    switch (tensor.scalar_type()) {
      case at::kFloat:
        return use(float{});
      case at::kDouble:
        return use(double{});
      default:
        return use(at::BFloat16{});
    }
  }

  // A pair is a channel of a sample. A relative norm over channels takes all pairs of a sample
  // together, a mean of squares can take any.
  std::int64_t pairs_in_group() const {
    return form_.relative && !form_.by_channel ? channels_ : 1;
  }
  std::int64_t groups() const { return batch_ * channels_ / pairs_in_group(); }
  std::int64_t scratch_elements() const { return form_.differences ? 3 * points_ : 0; }

  at::Tensor make_scratch(const at::Tensor& like) const {
    return at::empty({scratch_elements()}, like.options().dtype(at::kDouble));
  }

  double weight(std::int64_t point) const {
    if (!form_.area || shape_.area_weights.empty()) return 1;
    return shape_.area_weights[static_cast<std::size_t>(point / (points_ / shape_.points[0]))];
  }

  double of_group(const Norms& norms) const {
    if (!form_.relative) return norms.weights == 0 ? 0 : norms.error / norms.weights;
    return std::sqrt(norms.error) / (std::sqrt(norms.wanted) + relative_epsilon);
  }
  // Half the derivative by a square times the error, over that error.
  double slope_of_group(const Norms& norms) const {
    if (!form_.relative) return norms.weights == 0 ? 0 : 2 / norms.weights;
    if (norms.error == 0) return 0;
    return 1 / (std::sqrt(norms.error) * (std::sqrt(norms.wanted) + relative_epsilon));
  }

  template <typename T>
  FieldView<T> view_of(const std::vector<at::Tensor>& inputs, std::int64_t pair) const {
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

  template <typename T>
  Norms norms_of(const std::vector<at::Tensor>& inputs, std::int64_t group,
                 const at::Tensor& scratch) const {
    Norms norms;
    for (std::int64_t pair = group * pairs_in_group(); pair < (group + 1) * pairs_in_group();
         ++pair) {
      const FieldView<T> view = view_of<T>(inputs, pair);
      for (std::int64_t p = 0; p < points_; ++p) {
        const double error = view.error(p);
        norms.error += weight(p) * error * error;
        if (!form_.relative) continue;
        const double wanted = view.wanted(p);
        norms.wanted += wanted * wanted;
      }
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

  // Area weights have a mean of 1.
  template <typename T>
  double sum_of_weights(const FieldView<T>& view) const {
    if (view.mask == nullptr) return static_cast<double>(points_);
    double sum = 0;
    for (std::int64_t p = 0; p < points_; ++p) sum += view.there(p) ? weight(p) : 0;
    return sum;
  }

  template <typename T>
  void difference_of(const FieldView<T>& view, const AxisDifference& difference,
                     const double* field, double* slope) const {
    difference.apply(field, slope);
    if (view.mask == nullptr) return;
    difference.clear_incomplete([&](std::int64_t p) { return view.there(p); }, slope);
  }

  template <typename T>
  double square_of_differences(const FieldView<T>& view, double* field) const {
    double* slope = field + points_;
    double sum = 0;
    for (const auto& difference : differences_) {
      difference_of(view, difference, field, slope);
      for (std::int64_t p = 0; p < points_; ++p) sum += slope[p] * slope[p];
    }
    return sum;
  }

  template <typename T>
  void write_gradient(const std::vector<at::Tensor>& inputs, std::int64_t pair, double slope,
                      const at::Tensor& scratch, T* gradient) const {
    const FieldView<T> view = view_of<T>(inputs, pair);
    T* out = gradient + (view.prediction - inputs[0].const_data_ptr<T>());
    const auto write = [&](std::int64_t p, double value) {
      out[p * channels_] = view.there(p) ? rounded<T>(slope * view.scale(p) * value) : T(0);
    };
    if (!form_.differences) {
      for (std::int64_t p = 0; p < points_; ++p) write(p, weight(p) * view.error(p));
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

  void check_tables() const {
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

  std::int64_t steps() const { return shape_.push_forward + shape_.rollout; }

  std::string name_;
  LossForm form_;
  FieldShape shape_;
  std::int64_t batch_;
  std::int64_t step_;
  std::int64_t points_;
  std::int64_t channels_;
  std::vector<AxisDifference> differences_;
};

class MeanLoss : public Node {
 public:
  explicit MeanLoss(std::int64_t losses) : losses_(losses) {}

  plan::NodeSpec declare(const Declaration&) const override {
    plan::NodeSpec spec;
    spec.kind = "mean_loss";
    spec.cost_key = fmt::format("mean_loss {}", losses_);
    spec.gradient_aliases.assign(static_cast<std::size_t>(losses_), false);
    return spec;
  }

  at::Tensor forward(const Context&, const std::vector<at::Tensor>& inputs,
                     const std::vector<at::Tensor>&, Record*) const override {
    double sum = 0;
    for (const auto& loss : inputs) sum += loss.item<double>();
    at::Tensor mean = at::empty({}, inputs[0].options());
    mean.fill_(sum / static_cast<double>(losses_));
    return mean;
  }

  std::vector<at::Tensor> backward(const Context&, BackwardArguments& arguments) const override {
    const double outer = arguments.output_gradient.defined()
                             ? arguments.output_gradient.item<double>()
                             : arguments.loss_scale;
    std::vector<at::Tensor> gradients;
    for (std::int64_t k = 0; k < losses_; ++k) {
      at::Tensor gradient = at::empty({}, at::TensorOptions().dtype(at::kDouble));
      gradient.fill_(outer / static_cast<double>(losses_));
      gradients.push_back(gradient);
    }
    return gradients;
  }

 private:
  std::int64_t losses_;
};

}  // namespace

std::unique_ptr<Node> make_field_loss(const std::string& loss, const FieldShape& shape,
                                      std::int64_t batch, std::int64_t step) {
  return std::make_unique<FieldLoss>(loss, shape, batch, step);
}
std::unique_ptr<Node> make_mean_loss(std::int64_t losses) {
  return std::make_unique<MeanLoss>(losses);
}

}  // namespace garonne::nn
