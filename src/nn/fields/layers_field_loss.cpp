// Losses of predicted fields as nodes.
#include <ATen/Functions.h>
#include <fmt/format.h>

#include "kernels/field_loss.hpp"
#include "kernels/scalar.hpp"
#include "nn/fields/field_layers.hpp"
#include "nn/fields/field_loss_terms.hpp"
#include "nn/node_operations.hpp"
#include "nn/tensor_options.hpp"

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

  std::vector<ConstantTable> tables(Precision) const override { return terms_.tables(); }

  at::Tensor forward(const Context& context, const std::vector<at::Tensor>& inputs,
                     const std::vector<at::Tensor>&, Record*) const override {
    at::Tensor loss = at::empty({}, inputs[0].options().dtype(at::kDouble));
    const at::Tensor scratch = terms_.make_scratch(inputs[0]);
    kernels::field_loss(context.queue, terms_.comparison(context, inputs, scratch),
                        loss.data_ptr<double>());
    return loss;
  }

  std::vector<at::Tensor> backward(const Context& context,
                                   BackwardArguments& arguments) const override {
    at::Tensor gradient = at::empty_like(arguments.inputs[0]);
    const at::Tensor scratch = terms_.make_scratch(gradient);
    kernels::field_loss_gradient(context.queue,
                                 terms_.comparison(context, arguments.inputs, scratch),
                                 outer_gradient(arguments), gradient.data_ptr());
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

  std::vector<ConstantTable> tables(Precision) const override { return terms_.tables(); }

  at::Tensor forward(const Context& context, const std::vector<at::Tensor>& inputs,
                     const std::vector<at::Tensor>&, Record*) const override {
    at::Tensor norms = at::empty({3, terms_.groups()}, inputs[0].options().dtype(at::kDouble));
    kernels::field_norms(context.queue, terms_.comparison(context, inputs, at::Tensor()),
                         norms.data_ptr<double>());
    return norms;
  }

  std::vector<at::Tensor> backward(const Context& context,
                                   BackwardArguments& arguments) const override {
    at::Tensor gradient = at::empty_like(arguments.inputs[0]);
    // The squares of the error come first.
    kernels::field_norms_gradient(
        context.queue, terms_.comparison(context, arguments.inputs, at::Tensor()),
        arguments.output_gradient.const_data_ptr<double>(), gradient.data_ptr());
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

  at::Tensor forward(const Context& context, const std::vector<at::Tensor>& inputs,
                     const std::vector<at::Tensor>&, Record*) const override {
    at::Tensor loss = at::empty({}, inputs[0].options());
    kernels::gathered_field_loss(context.queue, gathered(inputs[0]), loss.data_ptr<double>());
    return loss;
  }

  std::vector<at::Tensor> backward(const Context& context,
                                   BackwardArguments& arguments) const override {
    at::Tensor gradient = at::empty({members_, 3, terms_.groups()}, arguments.inputs[0].options());
    kernels::gathered_field_loss_gradient(context.queue, gathered(arguments.inputs[0]),
                                          outer_gradient(arguments), gradient.data_ptr<double>());
    return {gradient};
  }

 private:
  kernels::GatheredNorms gathered(const at::Tensor& norms) const {
    return terms_.gathered(norms.view({members_, 3, terms_.groups()}));
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

  at::Tensor forward(const Context& context, const std::vector<at::Tensor>& inputs,
                     const std::vector<at::Tensor>&, Record*) const override {
    std::vector<kernels::Scalar> losses;
    for (const auto& loss : inputs)
      losses.push_back(kernels::Scalar{loss.const_data_ptr<double>()});
    at::Tensor mean = at::empty({}, inputs[0].options());
    kernels::mean_of(context.queue, losses, mean.data_ptr<double>());
    return mean;
  }

  std::vector<at::Tensor> backward(const Context& context,
                                   BackwardArguments& arguments) const override {
    std::vector<at::Tensor> gradients;
    for (std::int64_t k = 0; k < losses_; ++k) {
      at::Tensor gradient = at::empty({}, tensor_options(context.queue, at::kDouble));
      kernels::mean_of_gradient(context.queue, outer_gradient(arguments), losses_,
                                gradient.data_ptr<double>());
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
