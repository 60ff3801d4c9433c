#include "nn/layers/instance_norm_parts.hpp"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/instance_norm.hpp"
#include "nn/element_type.hpp"

namespace garonne::nn {
namespace {

// What sample `entry` has of a tensor, so many elements each.
const void* sample_of(const at::Tensor& tensor, std::int64_t entry, std::int64_t elements) {
  return static_cast<const char*>(tensor.const_data_ptr()) +
         entry * elements * static_cast<std::int64_t>(tensor.element_size());
}
void* made_sample_of(const at::Tensor& tensor, std::int64_t entry, std::int64_t elements) {
  return static_cast<char*>(tensor.data_ptr()) +
         entry * elements * static_cast<std::int64_t>(tensor.element_size());
}

// use(a number of the type of statistics)
template <typename Use>
void with_state_type(const Context& context, const Use& use) {
  if (context.precision == Precision::Float64) {
    use(double{});
  } else {
    use(float{});
  }
}

class InstanceMoments : public Node {
 public:
  InstanceMoments(const FieldRows& rows, std::int64_t points_in_row, std::int64_t batch,
                  std::int64_t channels)
      : batch_(batch),
        points_(static_cast<std::int64_t>(rows.slots.size()) * points_in_row),
        channels_(channels) {
    for (std::size_t slot = 0; slot < rows.slots.size(); ++slot) {
      auto& runs = rows.slots[slot] == FieldRows::none ? absent_ : counted_;
      const std::int64_t first = static_cast<std::int64_t>(slot) * points_in_row;
      if (runs.empty() || runs.back().first + runs.back().count != first)
        runs.push_back({first, 0});
      runs.back().count += points_in_row;
    }
  }

  plan::NodeSpec declare(const Declaration& declaration) const override {
    plan::NodeSpec spec;
    spec.kind = "instance_moments";
    spec.cost_key = fmt::format("instance_moments {}x{}x{}", batch_, points_, channels_);
    spec.gradient_aliases = {false};
    spec.pins_inputs = {true};
    spec.pins_output = true;
    spec.forward.transient_bytes = spec.forward_keep.transient_bytes =
        declaration.allocation(workspace_bytes());
    const std::int64_t statistics =
        declaration.allocation(batch_ * channels_ * state_bytes(declaration.precision));
    spec.backward.transient_bytes =
        2 * statistics + declaration.tensor(batch_ * channels_) + declaration.tensor(channels_);
    const auto elements = static_cast<double>(batch_ * points_ * channels_);
    spec.forward.floating_point_operations = spec.forward_keep.floating_point_operations =
        4 * elements;
    spec.backward.floating_point_operations = 3 * elements;
    return spec;
  }

  at::Tensor forward(const Context& context, const std::vector<at::Tensor>& inputs,
                     const std::vector<at::Tensor>&, Record*) const override {
    const at::Tensor moments =
        at::empty({2, batch_, channels_}, inputs[0].options().dtype(at::kDouble));
    const at::Tensor workspace =
        at::empty({workspace_bytes()}, inputs[0].options().dtype(at::kByte));
    auto* values = moments.data_ptr<double>();
    for (std::int64_t b = 0; b < batch_; ++b) {
      kernels::instance_norm_moments(context.queue, context.element_type(),
                                     sample_of(inputs[0], b, points_ * channels_), counted_,
                                     values + b * channels_, values + (batch_ + b) * channels_,
                                     workspace.data_ptr(), channels_);
    }
    return moments;
  }

  // (x - mean) · 2 by_squares + by_mean / points, in the place of a gain and a bias.
  std::vector<at::Tensor> backward(const Context& context,
                                   BackwardArguments& arguments) const override {
    const at::Tensor& x = arguments.inputs[0];
    const auto state = x.options().dtype(state_scalar_type(context.precision));
    const std::int64_t statistics = batch_ * channels_;
    const auto* given = arguments.output_gradient.const_data_ptr<double>();
    const auto* moments = arguments.output.const_data_ptr<double>();
    double points = 0;
    for (const auto& run : counted_) points += static_cast<double>(run.count);
    const at::Tensor mean = at::empty({batch_, channels_}, state);
    const at::Tensor factor = at::empty({batch_, channels_}, state);
    const at::Tensor constant = at::empty({batch_, channels_}, x.options());
    with_state_type(context, [&]<typename G>(G) {
      for (std::int64_t i = 0; i < statistics; ++i) {
        mean.data_ptr<G>()[i] = static_cast<G>(moments[i]);
        factor.data_ptr<G>()[i] = static_cast<G>(2 * given[statistics + i]);
      }
    });
    for (std::int64_t i = 0; i < statistics; ++i) {
      const double value = given[i] / points;
      switch (x.scalar_type()) {
        case at::kDouble:
          constant.data_ptr<double>()[i] = value;
          break;
        case at::kFloat:
          constant.data_ptr<float>()[i] = static_cast<float>(value);
          break;
        default:
          constant.data_ptr<at::BFloat16>()[i] = at::BFloat16(static_cast<float>(value));
      }
    }
    const at::Tensor one = at::empty({channels_}, x.options()).fill_(1);
    at::Tensor gradient = at::empty({batch_ * points_, channels_}, x.options());
    for (std::int64_t b = 0; b < batch_; ++b) {
      kernels::instance_norm_apply(
          context.queue, context.element_type(), sample_of(x, b, points_ * channels_),
          one.const_data_ptr(), sample_of(constant, b, channels_), sample_of(mean, b, channels_),
          sample_of(factor, b, channels_), made_sample_of(gradient, b, points_ * channels_),
          points_, channels_);
      for (const auto& run : absent_)
        gradient.narrow(0, b * points_ + run.first, run.count).zero_();
    }
    return {gradient};
  }

 private:
  std::int64_t workspace_bytes() const {
    return kernels::instance_norm_workspace_bytes(batch_, points_, channels_);
  }

  std::int64_t batch_;
  std::int64_t points_;
  std::int64_t channels_;
  std::vector<kernels::PointRun> counted_;
  std::vector<kernels::PointRun> absent_;
};

class InstanceNormOfMoments : public Node {
 public:
  InstanceNormOfMoments(std::vector<std::int64_t> counted, std::int64_t points, std::int64_t batch,
                        std::int64_t channels, double epsilon)
      : counted_(std::move(counted)),
        all_points_(static_cast<double>(
            std::accumulate(counted_.begin(), counted_.end(), std::int64_t{0}))),
        points_(points),
        batch_(batch),
        channels_(channels),
        epsilon_(epsilon) {}

  plan::NodeSpec declare(const Declaration& declaration) const override {
    plan::NodeSpec spec;
    spec.kind = "instance_norm_of_moments";
    spec.cost_key = fmt::format("instance_norm_of_moments {}x{}x{} of {}", batch_, points_,
                                channels_, counted_.size());
    spec.gradient_aliases = {false, false};
    spec.overwrites_gradient = {true, false};
    spec.pins_inputs = {true, true};
    const std::int64_t statistics =
        2 * declaration.allocation(batch_ * channels_ * state_bytes(declaration.precision));
    spec.forward.transient_bytes = spec.forward_keep.transient_bytes = statistics;
    spec.backward.transient_bytes = statistics + declaration.allocation(workspace_bytes()) +
                                    declaration.allocation(16 * batch_ * channels_) +
                                    declaration.allocation(8 * channels_);
    const auto elements = static_cast<double>(batch_ * points_ * channels_);
    spec.forward.floating_point_operations = spec.forward_keep.floating_point_operations =
        4 * elements;
    spec.backward.floating_point_operations = 10 * elements;
    return spec;
  }

  at::Tensor forward(const Context& context, const std::vector<at::Tensor>& inputs,
                     const std::vector<at::Tensor>& parameters, Record*) const override {
    at::Tensor y = at::empty_like(inputs[0]);
    const Statistics statistics = statistics_of(context, inputs[1]);
    for (std::int64_t b = 0; b < batch_; ++b) {
      kernels::instance_norm_apply(
          context.queue, context.element_type(), sample_of(inputs[0], b, points_ * channels_),
          parameters[0].const_data_ptr(), parameters[1].const_data_ptr(),
          sample_of(statistics.mean, b, channels_), sample_of(statistics.inverse, b, channels_),
          made_sample_of(y, b, points_ * channels_), points_, channels_);
    }
    return y;
  }

  std::vector<at::Tensor> backward(const Context& context,
                                   BackwardArguments& arguments) const override {
    const at::Tensor& x = arguments.inputs[0];
    const at::Tensor gradient =
        arguments.overwrite[0] ? arguments.output_gradient : at::empty_like(x);
    const auto doubles = x.options().dtype(at::kDouble);
    const at::Tensor of_moments = at::empty({members(), 2, batch_, channels_}, doubles);
    const Statistics statistics = statistics_of(context, arguments.inputs[1]);
    const at::Tensor workspace = at::empty({workspace_bytes()}, x.options().dtype(at::kByte));
    const at::Tensor sums = at::empty({batch_, 2, channels_}, doubles);
    at::Tensor gain = at::empty({channels_}, doubles);
    gain.copy_(arguments.parameters[0]);
    for (std::int64_t b = 0; b < batch_; ++b) {
      kernels::instance_norm_apply_backward(
          context.queue, context.element_type(),
          sample_of(arguments.output_gradient, b, points_ * channels_),
          sample_of(x, b, points_ * channels_), arguments.parameters[0].const_data_ptr(),
          sample_of(statistics.mean, b, channels_), sample_of(statistics.inverse, b, channels_),
          made_sample_of(gradient, b, points_ * channels_),
          sums.data_ptr<double>() + 2 * b * channels_, workspace.data_ptr(), points_, channels_);
    }
    add_parameter_gradients(context, sums, arguments);
    write_moment_gradients(arguments.inputs[1], sums, gain, of_moments);
    return {gradient, of_moments};
  }

 private:
  struct Statistics {
    at::Tensor mean;  // [batch, channels]
    at::Tensor inverse;
  };
  // Of one channel of one sample, over all members.
  struct Moments {
    double mean = 0;
    double variance = 0;
  };

  std::int64_t members() const { return static_cast<std::int64_t>(counted_.size()); }
  double counted(std::int64_t member) const {
    return static_cast<double>(counted_[static_cast<std::size_t>(member)]);
  }
  std::int64_t workspace_bytes() const {
    return kernels::instance_norm_workspace_bytes(batch_, points_, channels_);
  }
  // Mean (0) or squares (1) of a member.
  std::int64_t place(std::int64_t member, std::int64_t which, std::int64_t b,
                     std::int64_t c) const {
    return ((2 * member + which) * batch_ + b) * channels_ + c;
  }

  // Those of parts put together as by Chan, Golub and LeVeque, "Updating formulae" (1979).
  Moments moments_of(const double* gathered, std::int64_t b, std::int64_t c) const {
    Moments all;
    for (std::int64_t member = 0; member < members(); ++member)
      all.mean += counted(member) / all_points_ * gathered[place(member, 0, b, c)];
    double squares = 0;
    for (std::int64_t member = 0; member < members(); ++member) {
      const double beside = gathered[place(member, 0, b, c)] - all.mean;
      squares += gathered[place(member, 1, b, c)] + counted(member) * beside * beside;
    }
    all.variance = squares / all_points_;
    return all;
  }

  Statistics statistics_of(const Context& context, const at::Tensor& gathered) const {
    const auto options = gathered.options().dtype(state_scalar_type(context.precision));
    Statistics made{at::empty({batch_, channels_}, options),
                    at::empty({batch_, channels_}, options)};
    const auto* values = gathered.const_data_ptr<double>();
    with_state_type(context, [&]<typename G>(G) {
      for (std::int64_t b = 0; b < batch_; ++b) {
        for (std::int64_t c = 0; c < channels_; ++c) {
          const Moments moments = moments_of(values, b, c);
          made.mean.template data_ptr<G>()[b * channels_ + c] = static_cast<G>(moments.mean);
          made.inverse.template data_ptr<G>()[b * channels_ + c] =
              static_cast<G>(1 / std::sqrt(moments.variance + epsilon_));
        }
      }
    });
    return made;
  }

  // Gain, then bias: the sums over samples.
  void add_parameter_gradients(const Context& context, const at::Tensor& sums,
                               const BackwardArguments& arguments) const {
    const auto* products = sums.const_data_ptr<double>();
    with_state_type(context, [&]<typename G>(G) {
      for (std::int64_t which = 0; which < 2; ++which) {
        const auto& target = arguments.parameter_gradients[static_cast<std::size_t>(which)];
        auto* out = target.target.template data_ptr<G>();
        for (std::int64_t c = 0; c < channels_; ++c) {
          double sum = 0;
          for (std::int64_t b = 0; b < batch_; ++b)
            sum += products[(2 * b + 1 - which) * channels_ + c];
          out[c] = static_cast<G>(sum) + (target.accumulate ? out[c] : G{0});
        }
      }
    });
  }

  void write_moment_gradients(const at::Tensor& gathered, const at::Tensor& sums,
                              const at::Tensor& gain, const at::Tensor& of_moments) const {
    const auto* values = gathered.const_data_ptr<double>();
    const auto* products = sums.const_data_ptr<double>();
    const auto* gains = gain.const_data_ptr<double>();
    auto* out = of_moments.data_ptr<double>();
    for (std::int64_t b = 0; b < batch_; ++b) {
      for (std::int64_t c = 0; c < channels_; ++c) {
        const Moments moments = moments_of(values, b, c);
        const double inverse = 1 / std::sqrt(moments.variance + epsilon_);
        const double by_mean = -inverse * gains[c] * products[2 * b * channels_ + c];
        const double by_variance =
            -0.5 * inverse * inverse * gains[c] * products[(2 * b + 1) * channels_ + c];
        for (std::int64_t member = 0; member < members(); ++member) {
          const double share = counted(member) / all_points_;
          const double beside = values[place(member, 0, b, c)] - moments.mean;
          out[place(member, 0, b, c)] = share * (by_mean + 2 * by_variance * beside);
          out[place(member, 1, b, c)] = by_variance / all_points_;
        }
      }
    }
  }

  std::vector<std::int64_t> counted_;
  double all_points_;
  std::int64_t points_;
  std::int64_t batch_;
  std::int64_t channels_;
  double epsilon_;
};

}  // namespace

std::unique_ptr<Node> make_instance_moments(const FieldRows& rows, std::int64_t points_in_row,
                                            std::int64_t batch, std::int64_t channels) {
  return std::make_unique<InstanceMoments>(rows, points_in_row, batch, channels);
}
std::unique_ptr<Node> make_instance_norm_of_moments(std::vector<std::int64_t> counted,
                                                    std::int64_t points, std::int64_t batch,
                                                    std::int64_t channels, double epsilon) {
  return std::make_unique<InstanceNormOfMoments>(std::move(counted), points, batch, channels,
                                                 epsilon);
}

}  // namespace garonne::nn
