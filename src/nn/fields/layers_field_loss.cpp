// Losses of predicted fields as nodes.
#include <ATen/Functions.h>
#include <fmt/format.h>

#include "base/error.hpp"
#include "nn/fields/field_layers.hpp"
#include "nn/fields/field_loss_terms.hpp"
#include "nn/node_operations.hpp"

namespace garonne::nn {
namespace {

// The gradients of a loss's inputs: only the prediction has one.
std::vector<at::Tensor> gradients_of(const at::Tensor& prediction, std::size_t inputs) {
  std::vector<at::Tensor> gradients(inputs);
  gradients[0] = prediction;
  return gradients;
}

class FieldLoss : public Node {
 public:
  explicit FieldLoss(FieldLossTerms terms) : terms_(std::move(terms)) {}

  plan::NodeSpec declare(const Declaration& declaration) const override {
    plan::NodeSpec spec;
    spec.kind = "field_loss";
    spec.cost_key = "field_loss " + terms_.key();
    spec.gradient_aliases.assign(terms_.inputs(), false);
    spec.pins_inputs.assign(terms_.inputs(), true);
    spec.forward.transient_bytes = spec.forward_keep.transient_bytes =
        spec.backward.transient_bytes = declaration.allocation(terms_.scratch_elements() * 8);
    set_operations(spec, terms_.operations(), 2 * terms_.operations());
    return spec;
  }

  at::Tensor forward(const Context&, const std::vector<at::Tensor>& inputs,
                     const std::vector<at::Tensor>&, Record*) const override {
    at::Tensor loss = at::empty({}, inputs[0].options().dtype(at::kDouble));
    loss.fill_(terms_.mean_loss(inputs));
    return loss;
  }

  std::vector<at::Tensor> backward(const Context&, BackwardArguments& arguments) const override {
    at::Tensor gradient = at::empty_like(arguments.inputs[0]);
    terms_.write_mean_gradient(arguments.inputs, outer_gradient(arguments), gradient);
    return gradients_of(gradient, terms_.inputs());
  }

 private:
  FieldLossTerms terms_;
};

class FieldNormsNode : public Node {
 public:
  explicit FieldNormsNode(FieldLossTerms terms) : terms_(std::move(terms)) {}

  plan::NodeSpec declare(const Declaration&) const override {
    plan::NodeSpec spec;
    spec.kind = "field_norms";
    spec.cost_key = "field_norms " + terms_.key();
    spec.gradient_aliases.assign(terms_.inputs(), false);
    spec.pins_inputs.assign(terms_.inputs(), true);
    set_operations(spec, terms_.operations(), terms_.operations());
    return spec;
  }

  at::Tensor forward(const Context&, const std::vector<at::Tensor>& inputs,
                     const std::vector<at::Tensor>&, Record*) const override {
    const std::int64_t groups = terms_.groups();
    at::Tensor sums = at::empty({3, groups}, inputs[0].options().dtype(at::kDouble));
    auto* values = sums.data_ptr<double>();
    for (std::int64_t group = 0; group < groups; ++group) {
      const FieldNorms norms = terms_.norms(inputs, group, at::Tensor());
      values[group] = norms.error;
      values[groups + group] = norms.wanted;
      values[2 * groups + group] = norms.weights;
    }
    return sums;
  }

  std::vector<at::Tensor> backward(const Context&, BackwardArguments& arguments) const override {
    at::Tensor gradient = at::empty_like(arguments.inputs[0]);
    const auto* by_error = arguments.output_gradient.const_data_ptr<double>();
    for (std::int64_t group = 0; group < terms_.groups(); ++group)
      terms_.write_gradient(arguments.inputs, group, 2 * by_error[group], at::Tensor(), gradient);
    return gradients_of(gradient, terms_.inputs());
  }

 private:
  FieldLossTerms terms_;
};

class GatheredFieldLoss : public Node {
 public:
  GatheredFieldLoss(FieldLossTerms terms, std::int64_t members)
      : terms_(std::move(terms)), members_(members) {}

  plan::NodeSpec declare(const Declaration&) const override {
    plan::NodeSpec spec;
    spec.kind = "gathered_field_loss";
    spec.cost_key = fmt::format("gathered_field_loss {} over {}", terms_.groups(), members_);
    spec.gradient_aliases = {false};
    spec.pins_inputs = {true};
    return spec;
  }

  at::Tensor forward(const Context&, const std::vector<at::Tensor>& inputs,
                     const std::vector<at::Tensor>&, Record*) const override {
    at::Tensor loss = at::empty({}, inputs[0].options());
    double sum = 0;
    for (std::int64_t group = 0; group < terms_.groups(); ++group)
      sum += terms_.loss(norms_of(inputs[0], group));
    loss.fill_(sum / static_cast<double>(terms_.groups()));
    return loss;
  }

  std::vector<at::Tensor> backward(const Context&, BackwardArguments& arguments) const override {
    const std::int64_t groups = terms_.groups();
    const double outer = outer_gradient(arguments) / static_cast<double>(groups);
    at::Tensor gradient = at::empty({members_, 3, groups}, arguments.inputs[0].options());
    gradient.zero_();
    auto* values = gradient.data_ptr<double>();
    for (std::int64_t group = 0; group < groups; ++group) {
      const double by_error = outer * terms_.slope(norms_of(arguments.inputs[0], group)) / 2;
      for (std::int64_t member = 0; member < members_; ++member)
        values[3 * member * groups + group] = by_error;
    }
    return {gradient};
  }

 private:
  // In the order of the members.
  FieldNorms norms_of(const at::Tensor& gathered, std::int64_t group) const {
    const auto* values = gathered.const_data_ptr<double>();
    FieldNorms norms;
    for (std::int64_t member = 0; member < members_; ++member) {
      const double* const sums = values + 3 * member * terms_.groups() + group;
      norms.error += sums[0];
      norms.wanted += sums[terms_.groups()];
      norms.weights += sums[2 * terms_.groups()];
    }
    return norms;
  }

  FieldLossTerms terms_;
  std::int64_t members_;
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
    const double outer = outer_gradient(arguments);
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
  return std::make_unique<FieldLoss>(FieldLossTerms(loss, shape, batch, step));
}
std::int64_t field_norm_groups(const std::string& loss, const FieldShape& shape,
                               std::int64_t batch) {
  return FieldLossTerms(loss, shape, batch, 0).groups();
}
std::unique_ptr<Node> make_field_norms(const std::string& loss, const FieldShape& shape,
                                       std::int64_t batch, std::int64_t step) {
  return std::make_unique<FieldNormsNode>(FieldLossTerms(loss, shape, batch, step));
}
std::unique_ptr<Node> make_gathered_field_loss(const std::string& loss, const FieldShape& shape,
                                               std::int64_t batch) {
  return std::make_unique<GatheredFieldLoss>(FieldLossTerms(loss, shape, batch, 0),
                                             shape.cut.members);
}
std::unique_ptr<Node> make_mean_loss(std::int64_t losses) {
  return std::make_unique<MeanLoss>(losses);
}

}  // namespace garonne::nn
