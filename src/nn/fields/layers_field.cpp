// Nodes of models on fields that work point by point: lifting, GELU, gated sum, padding.
#include <ATen/Functions.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "kernels/bias.hpp"
#include "nn/allocation_sketch.hpp"
#include "nn/element_type.hpp"
#include "nn/fields/field_layers.hpp"
#include "nn/fields/field_window.hpp"
#include "nn/fields/input_noise.hpp"
#include "nn/gemm/product.hpp"
#include "nn/node_operations.hpp"

namespace garonne::nn {
namespace {

class FieldLift : public Node {
 public:
  FieldLift(const FieldShape& shape, std::int64_t batch, FieldWindow window,
            Coordinates coordinates, std::int64_t outputs, bool bias)
      : points_(shape.points),
        field_rows_(shape.rows),
        batch_(batch),
        members_(shape.members),
        rows_(batch * shape.count()),
        window_(std::move(window)),
        noise_(shape, window_),
        coordinates_(coordinates),
        outputs_(outputs),
        bias_(bias) {
    for (const auto& part : window_.parts) channels_ += part.channels;
    inputs_ = channels_;
    if (coordinates_ == Coordinates::None) return;
    inputs_ += static_cast<std::int64_t>(points_.size());
    for (std::size_t axis = 0; axis < points_.size(); ++axis) place_on(axis);
  }

  std::vector<ConstantTable> tables(Precision) const override {
    if (coordinates_ == Coordinates::None) return {};
    return {{table_name(), table_bytes(), [this] { return places_.data(); }}};
  }

  plan::NodeSpec declare(const Declaration& declaration) const override {
    plan::NodeSpec spec;
    spec.kind = "field_lift";
    spec.cost_key = fmt::format("field_lift {}x{}x{}{} coordinates {} of", rows_, outputs_, inputs_,
                                bias_ ? "" : " no bias", static_cast<int>(coordinates_));
    spec.cost_key += window_key(window_) + noise_.key();
    spec.gradient_aliases.assign(window_.values.size(), false);
    spec.pins_inputs.assign(window_.values.size(), true);
    const ProductTransients transients = product_transients(declaration, rows_, outputs_, inputs_);
    const std::int64_t features = declaration.tensor(rows_ * inputs_);
    const std::int64_t noise = noise_.transient_bytes(declaration);
    AllocationSketch forward(declaration);
    const std::int64_t read = forward.make(features, 1);
    forward.pass(noise);
    forward.make(rows_ * outputs_, declaration.element_bytes());
    forward.pass(transients.forward_bytes);
    forward.drop(read);
    spec.forward.transient_bytes = spec.forward_keep.transient_bytes = forward.transient_bytes();
    AllocationSketch sketch(declaration);
    sketch.pass(features + std::max(noise, transients.weight_gradient_bytes));
    bool differentiates = false;
    for (std::size_t s = 0; s < window_.values.size(); ++s) differentiates |= differentiable(s);
    if (differentiates) {
      const std::int64_t gradient = sketch.make(features, 1);
      sketch.pass(transients.input_gradient_bytes);
      for (std::size_t s = 0; s < window_.values.size(); ++s) {
        if (differentiable(s)) sketch.make(rows_ * source_channels(s), declaration.element_bytes());
      }
      sketch.drop(gradient);
    }
    spec.backward.transient_bytes = sketch.transient_bytes();
    const double operations = 2.0 * static_cast<double>(rows_ * inputs_ * outputs_);
    set_operations(spec, operations, differentiates ? 2 * operations : operations);
    return spec;
  }

  at::Tensor forward(const Context& context, const std::vector<at::Tensor>& inputs,
                     const std::vector<at::Tensor>& parameters, Record*) const override {
    return context.products->forward(context.queue, features(context, inputs), parameters[0],
                                     bias_ ? parameters[1] : at::Tensor());
  }

  std::vector<at::Tensor> backward(const Context& context,
                                   BackwardArguments& arguments) const override {
    const at::Tensor& given = arguments.output_gradient;
    const auto& targets = arguments.parameter_gradients;
    context.products->weight_gradient(context.queue, given, features(context, arguments.inputs),
                                      targets[0].target, targets[0].accumulate);
    if (bias_) {
      kernels::bias_gradient(context.queue, context.element_type(), given.const_data_ptr(),
                             targets[1].target.data_ptr(), targets[1].accumulate, rows_, outputs_);
    }
    std::vector<at::Tensor> gradients(window_.values.size());
    at::Tensor of_features;
    for (std::size_t s = 0; s < gradients.size(); ++s) {
      if (!arguments.wanted[s] || !differentiable(s)) continue;
      if (!of_features.defined())
        of_features =
            context.products->input_gradient(context.queue, given, arguments.parameters[0]);
      gradients[s] = at::empty({rows_, source_channels(s)}, given.options()).zero_();
      std::int64_t at = 0;
      for (const auto& part : window_.parts) {
        if (static_cast<std::size_t>(part.source) == s) {
          gradients[s]
              .narrow(1, part.first_channel, part.channels)
              .copy_(of_features.narrow(1, at, part.channels));
        }
        at += part.channels;
      }
    }
    return gradients;
  }

 private:
  const FieldPart& part_of(std::size_t source) const {
    return *std::find_if(window_.parts.begin(), window_.parts.end(), [&](const FieldPart& part) {
      return static_cast<std::size_t>(part.source) == source;
    });
  }
  bool differentiable(std::size_t source) const { return part_of(source).differentiable; }
  std::int64_t source_channels(std::size_t source) const { return part_of(source).source_channels; }

  // [rows, inputs]
  at::Tensor features(const Context& context, const std::vector<at::Tensor>& sources) const {
    const std::int64_t points = rows_ / batch_;
    at::Tensor all = at::empty({rows_, inputs_}, sources[0].options());
    const std::int64_t samples = batch_ / members_;
    const at::Tensor by_member = all.view({samples, members_, points, inputs_});
    std::int64_t at = 0;
    for (const auto& part : window_.parts) {
      const at::Tensor& source = sources[static_cast<std::size_t>(part.source)];
      const at::Tensor channels_last =
          part.channels_first
              ? source.view({samples, 1, part.source_channels, points}).transpose(2, 3)
              : source.view({samples, members_, points, part.source_channels});
      by_member.narrow(3, at, part.channels)
          .copy_(channels_last.narrow(3, part.first_channel, part.channels));
      if (part.channels_first) {
        noise_.add(
            context, part.first_channel,
            all.view({batch_, points, inputs_}).narrow(2, at, part.channels).transpose(1, 2));
      }
      at += part.channels;
    }
    if (coordinates_ == Coordinates::None) return all;
    const at::Tensor table = context.table(table_name(), table_bytes());
    std::int64_t after = points;
    std::int64_t first = 0;  // place of the axis
    for (const std::int64_t count : points_) {
      after /= count;
      const at::Tensor column =
          all.narrow(1, at++, 1).view({batch_ * points / (count * after), count, after});
      if (table.defined()) {
        column.copy_(
            table.view(at::kDouble).narrow(0, first, count).view({1, count, 1}).expand_as(column));
      } else {
        for (std::int64_t n = 0; n < count; ++n)
          column.select(1, n).fill_(places_[static_cast<std::size_t>(first + n)]);
      }
      first += count;
    }
    return all;
  }

  void place_on(std::size_t axis) {
    const bool cut = axis == 0 && field_rows_.cut();
    const std::int64_t whole = cut ? field_rows_.whole : points_[axis];
    const std::int64_t steps = coordinates_ == Coordinates::Periodic ? whole : whole - 1;
    for (std::int64_t n = 0; n < points_[axis]; ++n) {
      const std::int64_t place = cut ? std::max<std::int64_t>(field_rows_.row(n), 0) : n;
      places_.push_back(steps == 0 ? 0.0 : static_cast<double>(place) / static_cast<double>(steps));
    }
  }
  // Equal on all members of a tensor group.
  std::string table_name() const {
    return fmt::format("coordinates {}{}{}", fmt::join(points_, "x"),
                       field_rows_.cut() ? fmt::format(" of {}", field_rows_.whole) : "",
                       coordinates_ == Coordinates::Periodic ? " periodic" : "");
  }
  std::int64_t table_bytes() const {
    return static_cast<std::int64_t>(places_.size() * sizeof(double));
  }

  std::vector<std::int64_t> points_;
  FieldRows field_rows_;
  std::int64_t batch_;
  std::int64_t members_;
  std::int64_t rows_;
  FieldWindow window_;
  InputNoise noise_;
  Coordinates coordinates_;
  std::int64_t outputs_;
  bool bias_;
  std::int64_t channels_ = 0;
  std::int64_t inputs_ = 0;
  std::vector<double> places_;  // of the points of each axis, one axis after the other
};

class ExactGelu : public Node {
 public:
  ExactGelu(std::int64_t rows, std::int64_t channels) : rows_(rows), channels_(channels) {}

  plan::NodeSpec declare(const Declaration&) const override {
    plan::NodeSpec spec;
    spec.kind = "exact_gelu";
    spec.cost_key = fmt::format("exact_gelu {}x{}", rows_, channels_);
    spec.gradient_aliases = {false};
    spec.overwrites_gradient = {true};
    spec.pins_inputs = {true};
    const double elements = static_cast<double>(rows_ * channels_);
    set_operations(spec, 20 * elements, 30 * elements);
    return spec;
  }

  at::Tensor forward(const Context&, const std::vector<at::Tensor>& inputs,
                     const std::vector<at::Tensor>&, Record*) const override {
    at::Tensor y = at::empty_like(inputs[0]);
    at::gelu_out(y, inputs[0]);
    return y;
  }

  std::vector<at::Tensor> backward(const Context&, BackwardArguments& arguments) const override {
    at::Tensor gradient =
        arguments.overwrite[0] ? arguments.output_gradient : at::empty_like(arguments.inputs[0]);
    at::gelu_backward_out(gradient, arguments.output_gradient, arguments.inputs[0]);
    return {gradient};
  }

 private:
  std::int64_t rows_;
  std::int64_t channels_;
};

class GatedAdd : public Node {
 public:
  GatedAdd(std::int64_t rows, std::int64_t channels) : rows_(rows), channels_(channels) {}

  plan::NodeSpec declare(const Declaration& declaration) const override {
    plan::NodeSpec spec;
    spec.kind = "gated_add";
    spec.cost_key = fmt::format("gated_add {}x{}", rows_, channels_);
    spec.gradient_aliases = {true, false};
    spec.pins_inputs = {false, true};
    // One piece of the products; in bfloat16 its two factors in float32 too.
    const bool widens = has_master(declaration.precision);
    const std::int64_t most = piece_rows(declaration.device.kind, declaration.precision);
    const std::int64_t piece =
        declaration.allocation(most * channels_ * state_bytes(declaration.precision));
    spec.backward.transient_bytes =
        std::max<std::int64_t>(0, (widens ? 3 : 1) * piece - declaration.tensor(rows_ * channels_));
    const double elements = static_cast<double>(rows_ * channels_);
    set_operations(spec, 2 * elements, 3 * elements);
    if (declaration.device.is_gpu()) {
      const auto pieces = static_cast<int>((rows_ + most - 1) / most);
      set_kernels(spec, 1, (widens ? 4 : 2) * pieces + 1);
    }
    return spec;
  }

  at::Tensor forward(const Context&, const std::vector<at::Tensor>& inputs,
                     const std::vector<at::Tensor>& parameters, Record*) const override {
    const at::Tensor& x = inputs[0];
    at::Tensor y = at::empty_like(x);
    at::addcmul_out(y, x, inputs[1], parameters[0]);
    return y;
  }

  std::vector<at::Tensor> backward(const Context& context,
                                   BackwardArguments& arguments) const override {
    const at::Tensor& given = arguments.output_gradient;
    gate_gradient(context, arguments);
    at::Tensor gradient = at::empty_like(given);
    at::mul_out(gradient, given, arguments.parameters[0]);
    return {arguments.output_gradient, gradient};
  }

 private:
  // Products of a piece stay in a processor's cache. On a GPU, where every piece is launched, they
  // take what the gradient of the skip takes after them.
  std::int64_t piece_rows(DeviceKind device, Precision precision) const {
    std::int64_t rows = std::max<std::int64_t>(1, 16384 / channels_);
    if (device == DeviceKind::Cuda)
      rows = std::max(rows, has_master(precision) ? (rows_ + 5) / 6 : rows_);
    return std::min(rows_, rows);
  }

  // The sum over rows of gradient · skip, piece by piece.
  void gate_gradient(const Context& context, const BackwardArguments& arguments) const {
    const ParameterGradient& target = arguments.parameter_gradients[0];
    const at::Tensor& given = arguments.output_gradient;
    const at::Tensor& skip = arguments.inputs[1];
    const auto type = state_scalar_type(context.precision);
    const std::int64_t most = piece_rows(context.queue.device, context.precision);
    const at::Tensor products = at::empty({most, channels_}, given.options().dtype(type));
    for (std::int64_t first = 0; first < rows_; first += most) {
      const std::int64_t rows = std::min(most, rows_ - first);
      at::Tensor piece = products.narrow(0, 0, rows);
      at::mul_out(piece, given.narrow(0, first, rows).to(type),
                  skip.narrow(0, first, rows).to(type));
      kernels::bias_gradient(context.queue, element_type_of(piece), piece.const_data_ptr(),
                             target.target.data_ptr(), target.accumulate || first > 0, rows,
                             channels_);
    }
  }

  std::int64_t rows_;
  std::int64_t channels_;
};

// Between a grid and the one with `padding` more points at the far end of each axis.
class FieldPadding : public Node {
 public:
  FieldPadding(bool grows, std::int64_t batch, std::vector<std::int64_t> points,
               std::int64_t padding, std::int64_t channels, const FieldRows& rows)
      : grows_(grows),
        small_{batch},
        padding_(padding),
        rows_(rows.cut() ? rows.present() : points[0]) {
    small_.insert(small_.end(), points.begin(), points.end());
    small_.push_back(channels);
    large_ = small_;
    for (std::size_t axis = rows.cut() ? 2 : 1; axis + 1 < large_.size(); ++axis)
      large_[axis] += padding;
  }

  plan::NodeSpec declare(const Declaration&) const override {
    plan::NodeSpec spec;
    spec.kind = grows_ ? "field_pad" : "field_crop";
    spec.cost_key = fmt::format("{} {} by {}{}", spec.kind, fmt::join(small_, "x"), padding_,
                                large_[1] == small_[1] ? " but the first axis" : "");
    spec.gradient_aliases = {false};
    return spec;
  }

  at::Tensor forward(const Context&, const std::vector<at::Tensor>& inputs,
                     const std::vector<at::Tensor>&, Record*) const override {
    return grows_ ? pad(inputs[0]) : crop(inputs[0]);
  }

  std::vector<at::Tensor> backward(const Context&, BackwardArguments& arguments) const override {
    return {grows_ ? crop(arguments.output_gradient) : pad(arguments.output_gradient)};
  }

 private:
  // What both have, of either.
  at::Tensor shared(const at::Tensor& field, const std::vector<std::int64_t>& sizes) const {
    at::Tensor view = field.view(sizes).narrow(1, 0, rows_);
    for (std::size_t axis = 2; axis + 1 < small_.size(); ++axis)
      view = view.narrow(static_cast<std::int64_t>(axis), 0, small_[axis]);
    return view;
  }
  at::Tensor pad(const at::Tensor& x) const {
    at::Tensor large = at::empty(large_, x.options()).zero_();
    shared(large, large_).copy_(shared(x, small_));
    return large.view({-1, large_.back()});
  }
  at::Tensor crop(const at::Tensor& x) const {
    at::Tensor small = at::empty(small_, x.options());
    if (rows_ < small_[1]) small.zero_();
    shared(small, small_).copy_(shared(x, large_));
    return small.view({-1, small_.back()});
  }

  bool grows_;
  std::vector<std::int64_t> small_;
  std::vector<std::int64_t> large_;
  std::int64_t padding_;
  std::int64_t rows_;  // the first of them, that both have
};

}  // namespace

std::unique_ptr<Node> make_field_lift(const FieldShape& shape, std::int64_t batch,
                                      const FieldWindow& window, Coordinates coordinates,
                                      std::int64_t outputs, bool bias) {
  return std::make_unique<FieldLift>(shape, batch, window, coordinates, outputs, bias);
}
std::unique_ptr<Node> make_exact_gelu(std::int64_t rows, std::int64_t channels) {
  return std::make_unique<ExactGelu>(rows, channels);
}
std::unique_ptr<Node> make_gated_add(std::int64_t rows, std::int64_t channels) {
  return std::make_unique<GatedAdd>(rows, channels);
}
std::unique_ptr<Node> make_field_pad(std::int64_t batch, std::vector<std::int64_t> points,
                                     std::int64_t padding, std::int64_t channels,
                                     const FieldRows& rows) {
  return std::make_unique<FieldPadding>(true, batch, std::move(points), padding, channels, rows);
}
std::unique_ptr<Node> make_field_crop(std::int64_t batch, std::vector<std::int64_t> points,
                                      std::int64_t padding, std::int64_t channels,
                                      const FieldRows& rows) {
  return std::make_unique<FieldPadding>(false, batch, std::move(points), padding, channels, rows);
}

}  // namespace garonne::nn
