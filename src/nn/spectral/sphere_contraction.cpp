#include "nn/spectral/sphere_contraction.hpp"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include <algorithm>

#include "nn/element_type.hpp"
#include "nn/node_operations.hpp"

namespace garonne::nn {

namespace {

class SphereContraction : public Node {
 public:
  SphereContraction(SphereGroups groups, std::int64_t batch, std::int64_t inputs,
                    std::int64_t outputs)
      : groups_(std::move(groups)), batch_(batch), inputs_(inputs), outputs_(outputs) {}

  plan::NodeSpec declare(const Declaration& declaration) const override {
    plan::NodeSpec spec;
    spec.kind = "sphere_contraction";
    spec.cost_key =
        fmt::format("sphere_contraction {} {}x{}x{}", groups_.text, batch_, inputs_, outputs_);
    spec.gradient_aliases = {false};
    spec.pins_inputs = {true};
    spec.splits_backward = true;
    // The weights of what is converted at once, or their gradient.
    const std::int64_t at_once = groups_at_once(declaration.device.kind);
    spec.forward.transient_bytes = spec.forward_keep.transient_bytes =
        spec.backward.transient_bytes = spec.backward_weight.transient_bytes =
            declaration.allocation(at_once * 2 * inputs_ * outputs_ *
                                   state_bytes(declaration.precision));
    const double operations = 8.0 * static_cast<double>(groups_.rows * batch_) *
                              static_cast<double>(inputs_) * static_cast<double>(outputs_);
    spec.forward.floating_point_operations = spec.forward_keep.floating_point_operations =
        spec.backward.floating_point_operations = spec.backward_weight.floating_point_operations =
            operations;
    // Weights are converted, and multiplied.
    const std::int64_t conversions = (present() + at_once - 1) / at_once;
    const auto kernels = static_cast<int>(conversions + (groups_.single ? conversions : present()));
    set_kernels(spec, kernels, kernels);
    spec.backward_weight.kernels = kernels;
    return spec;
  }

  at::Tensor forward(const Context& context, const std::vector<at::Tensor>& inputs,
                     const std::vector<at::Tensor>& parameters, Record*) const override {
    const at::Tensor x = complex_rows(inputs[0], inputs_);
    const at::Tensor out = make_rows(outputs_, inputs[0]);
    const at::Tensor y = complex_rows(out, outputs_);
    for_conversions(context.queue.device, [&](const Groups& converted) {
      const at::Tensor all = weights(context, parameters[0], converted);
      for_products(converted, all, [&](const Groups& groups, const at::Tensor& weight) {
        at::Tensor target = rows_of(y, groups);
        multiply(target, rows_of(x, groups), weight);
      });
    });
    return out;
  }

  // dx = dy · conj(w)ᵀ, dw = conj(x)ᵀ · dy, with a gradient's imaginary part that of the number.
  std::vector<at::Tensor> backward(const Context& context,
                                   BackwardArguments& arguments) const override {
    const at::Tensor dy = complex_rows(arguments.output_gradient, outputs_);
    if (arguments.weights) {
      const at::Tensor x = complex_rows(arguments.inputs[0], inputs_);
      const ParameterGradient& gradient = arguments.parameter_gradients[0];
      const at::Tensor all = gradient.target.view({groups_.weights, inputs_, outputs_, 2});
      if (!gradient.accumulate && present() < groups_.weights)
        all.narrow(0, present(), groups_.weights - present()).zero_();
      const at::Tensor sums =
          at::empty({groups_at_once(context.queue.device), inputs_, outputs_, 2},
                    arguments.output_gradient.options());
      for_conversions(context.queue.device, [&](const Groups& groups) {
        const at::Tensor sum = matrices_of(sums, 0, groups);
        for_products(groups, at::view_as_complex(sum),
                     [&](const Groups& own, const at::Tensor& gradient_of_own) {
                       at::Tensor product = gradient_of_own;
                       multiply(product, rows_of(x, own).transpose(-2, -1).conj(),
                                rows_of(dy, own));
                     });
        at::Tensor target = matrices_of(all, groups.first, groups);
        if (gradient.accumulate) {
          target.add_(sum);
        } else {
          target.copy_(sum);
        }
      });
    }
    if (!arguments.wanted[0]) return {at::Tensor()};
    const at::Tensor out = make_rows(inputs_, arguments.output_gradient);
    const at::Tensor dx = complex_rows(out, inputs_);
    for_conversions(context.queue.device, [&](const Groups& converted) {
      const at::Tensor all = weights(context, arguments.parameters[0], converted);
      for_products(converted, all, [&](const Groups& groups, const at::Tensor& weight) {
        at::Tensor target = rows_of(dx, groups);
        multiply(target, rows_of(dy, groups), weight.transpose(-2, -1).conj());
      });
    });
    return {out};
  }

 private:
  // Groups that there are.
  std::int64_t present() const { return static_cast<std::int64_t>(groups_.begins.size()) - 1; }

  // A GPU converts the weights of many groups at once, as many as are 64 MiB in float32, and
  // multiplies those of one row each, of which there are tens of thousands, at once too.
  std::int64_t groups_at_once(DeviceKind device) const {
    constexpr std::int64_t most_numbers = std::int64_t{1} << 24;
    if (device != DeviceKind::Cuda) return 1;
    return std::min(groups_.weights,
                    std::max<std::int64_t>(1, most_numbers / (2 * inputs_ * outputs_)));
  }

  // One group, whose weights are a matrix, or several, whose weights have an axis for them.
  struct Groups {
    std::int64_t first;
    std::int64_t count;
    bool several;
  };
  template <typename Work>
  void for_conversions(DeviceKind device, const Work& work) const {
    const std::int64_t at_once = groups_at_once(device);
    for (std::int64_t first = 0; first < present(); first += at_once)
      work(Groups{first, std::min(at_once, present() - first), at_once > 1});
  }
  // work(groups, their matrices) for what is one product.
  template <typename Work>
  void for_products(const Groups& groups, const at::Tensor& matrices, const Work& work) const {
    if (!groups.several || groups_.single) return work(groups, matrices);
    for (std::int64_t i = 0; i < groups.count; ++i)
      work(Groups{groups.first + i, 1, false}, matrices.select(0, i));
  }
  static void multiply(at::Tensor& out, const at::Tensor& left, const at::Tensor& right) {
    if (out.dim() == 3) {
      at::bmm_out(out, left, right);
    } else {
      at::mm_out(out, left, right);
    }
  }

  // [rows of the group and samples, channels], or of several groups of one row [groups, samples,
  // channels].
  at::Tensor rows_of(const at::Tensor& all, const Groups& groups) const {
    const std::int64_t first = groups_.begins[static_cast<std::size_t>(groups.first)];
    const std::int64_t end = groups_.begins[static_cast<std::size_t>(groups.first + groups.count)];
    const at::Tensor rows = all.narrow(0, first * batch_, (end - first) * batch_);
    return groups.several ? rows.view({groups.count, batch_, rows.size(1)}) : rows;
  }
  // From matrix `first` on of [matrices, inputs, outputs, 2], the first axis only where there are
  // several.
  static at::Tensor matrices_of(const at::Tensor& all, std::int64_t first, const Groups& groups) {
    return groups.several ? all.narrow(0, first, groups.count) : all.select(0, first);
  }

  // With zeros in the rows of no group.
  at::Tensor make_rows(std::int64_t channels, const at::Tensor& like) const {
    at::Tensor rows = at::empty({groups_.rows, batch_, channels, 2}, like.options());
    const std::int64_t used = groups_.begins.back();
    if (used < groups_.rows) rows.narrow(0, used, groups_.rows - used).zero_();
    return rows;
  }

  at::Tensor complex_rows(const at::Tensor& values, std::int64_t channels) const {
    return at::view_as_complex(values.view({groups_.rows * batch_, channels, 2}));
  }

  // A copy: parameters and gradients may be at odd places of a bucket, and are no complex numbers
  // there.
  at::Tensor weights(const Context& context, const at::Tensor& all, const Groups& groups) const {
    const at::Tensor own =
        matrices_of(all.view({groups_.weights, inputs_, outputs_, 2}), groups.first, groups);
    const at::Tensor copy =
        at::empty(own.sizes(), own.options().dtype(state_scalar_type(context.precision)));
    copy.copy_(own);
    return at::view_as_complex(copy);
  }

  SphereGroups groups_;
  std::int64_t batch_;
  std::int64_t inputs_;
  std::int64_t outputs_;
};

// The first packed row of a group.
std::int64_t first_row_of(const kernels::SphereShape& shape, SphereWeights weights,
                          std::int64_t group) {
  return weights == SphereWeights::ByDegree ? shape.first_row(group) : group;
}

}  // namespace

std::int64_t sphere_weights(const kernels::SphereShape& shape, SphereWeights weights) {
  return weights == SphereWeights::ByDegree ? shape.degrees : shape.rows();
}

std::vector<std::int64_t> sphere_runs(const kernels::SphereShape& shape, SphereWeights weights,
                                      std::int64_t members) {
  std::vector<std::int64_t> begins;
  for (std::int64_t member = 0; member <= members; ++member) {
    begins.push_back(
        first_row_of(shape, weights, even_begin(sphere_weights(shape, weights), members, member)));
  }
  return begins;
}

SphereGroups sphere_groups(const kernels::SphereShape& shape, SphereWeights weights,
                           const FieldCut& cut) {
  SphereGroups groups;
  const std::int64_t all = sphere_weights(shape, weights);
  const std::int64_t first = even_begin(all, cut.members, cut.member);
  for (std::int64_t group = first; group <= even_begin(all, cut.members, cut.member + 1); ++group) {
    groups.begins.push_back(first_row_of(shape, weights, group) -
                            first_row_of(shape, weights, first));
  }
  const std::vector<std::int64_t> runs = sphere_runs(shape, weights, cut.members);
  for (std::size_t member = 0; member + 1 < runs.size(); ++member)
    groups.rows = std::max(groups.rows, runs[member + 1] - runs[member]);
  groups.weights = even_slots(all, cut.members);
  groups.single = weights == SphereWeights::ByDegreeAndOrder;
  groups.text = fmt::format("degrees {} orders {} by {}{}", shape.degrees, shape.orders,
                            weights == SphereWeights::ByDegree ? "degree" : "order",
                            cut.cuts() ? fmt::format(" over {}", cut.members) : "");
  return groups;
}

std::unique_ptr<Node> make_sphere_contraction(SphereGroups groups, std::int64_t batch,
                                              std::int64_t inputs, std::int64_t outputs) {
  return std::make_unique<SphereContraction>(std::move(groups), batch, inputs, outputs);
}

}  // namespace garonne::nn
