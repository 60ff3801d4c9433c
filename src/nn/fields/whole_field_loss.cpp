// A loss with terms between rows, of a field that is cut: every member computes it of all rows.
#include <ATen/Functions.h>
#include <fmt/format.h>

#include <algorithm>

#include "kernels/field_loss.hpp"
#include "kernels/row_deal.hpp"
#include "nn/element_type.hpp"
#include "nn/fields/field_layers.hpp"
#include "nn/fields/field_loss_terms.hpp"
#include "nn/node_operations.hpp"

namespace garonne::nn {
namespace {

class ComparedFields : public Node {
 public:
  ComparedFields(const FieldShape& shape, std::int64_t batch, std::int64_t step)
      : masked_(shape.masked),
        channels_(shape.target_channels),
        elements_(batch * shape.count() * shape.target_channels),
        target_step_(step),
        mask_step_(shape.push_forward + step) {}

  plan::NodeSpec declare(const Declaration&) const override {
    plan::NodeSpec spec;
    spec.kind = "compared_fields";
    spec.cost_key = fmt::format("compared_fields {} of {}", elements_, parts());
    spec.gradient_aliases.assign(static_cast<std::size_t>(parts()), false);
    const auto elements = static_cast<double>(parts() * elements_);
    set_operations(spec, elements, elements);
    return spec;
  }

  at::Tensor forward(const Context&, const std::vector<at::Tensor>& inputs,
                     const std::vector<at::Tensor>&, Record*) const override {
    at::Tensor all = at::empty({parts(), elements_}, inputs[0].options().dtype(at::kDouble));
    all.select(0, 0).copy_(inputs[0].view({-1}));
    all.select(0, 1).copy_(part(inputs[1], target_step_));
    if (masked_) all.select(0, 2).copy_(part(inputs[2], mask_step_));
    return all;
  }

  std::vector<at::Tensor> backward(const Context& context,
                                   BackwardArguments& arguments) const override {
    const at::Tensor given = arguments.output_gradient.view({parts(), elements_}).select(0, 0);
    const auto type = compute_scalar_type(context.precision);
    std::vector<at::Tensor> gradients(static_cast<std::size_t>(parts()));
    gradients[0] = at::empty({elements_ / channels_, channels_}, given.options().dtype(type));
    gradients[0].view({-1}).copy_(given);
    return gradients;
  }

 private:
  std::int64_t parts() const { return masked_ ? 3 : 2; }
  at::Tensor part(const at::Tensor& steps, std::int64_t step) const {
    return steps.view({-1, elements_}).select(0, step);
  }

  bool masked_;
  std::int64_t channels_;
  std::int64_t elements_;
  std::int64_t target_step_;
  std::int64_t mask_step_;
};

class WholeFieldLoss : public Node {
 public:
  WholeFieldLoss(const std::string& loss, const FieldShape& whole,
                 std::vector<FieldRows> rows_of_members, std::int64_t batch)
      : terms_(loss, one_step(whole), batch, 0),
        batch_(batch),
        channels_(whole.target_channels),
        rows_(whole.points[0]),
        in_row_(whole.count() / rows_),
        rows_of_members_(std::move(rows_of_members)) {}

  plan::NodeSpec declare(const Declaration& declaration) const override {
    plan::NodeSpec spec;
    spec.kind = "whole_field_loss";
    spec.cost_key =
        fmt::format("whole_field_loss {} over {}", terms_.key(), rows_of_members_.size());
    spec.gradient_aliases = {false};
    spec.pins_inputs = {true};
    const std::int64_t fields = parts() * declaration.allocation(elements() * 8);
    const std::int64_t by_prediction = declaration.allocation(elements() * 8);
    const std::int64_t scratch = declaration.allocation(terms_.scratch_elements() * 8);
    const std::int64_t gradient = declaration.allocation(members() * parts() * part_elements() * 8);
    spec.forward.transient_bytes = spec.forward_keep.transient_bytes = fields + scratch;
    // The scratch is given back before the gradient, which is no transient, is made.
    spec.backward.transient_bytes =
        fields + by_prediction + std::max<std::int64_t>(0, scratch - gradient);
    set_operations(spec, terms_.operations(), 2 * terms_.operations());
    return spec;
  }

  std::vector<ConstantTable> tables(Precision) const override { return terms_.tables(); }

  at::Tensor forward(const Context& context, const std::vector<at::Tensor>& inputs,
                     const std::vector<at::Tensor>&, Record*) const override {
    at::Tensor loss = at::empty({}, inputs[0].options());
    const std::vector<at::Tensor> fields = whole_fields(context, inputs[0]);
    const at::Tensor scratch = terms_.make_scratch(fields[0]);
    kernels::field_loss(context.queue, terms_.comparison(context, fields, scratch),
                        loss.data_ptr<double>());
    return loss;
  }

  std::vector<at::Tensor> backward(const Context& context,
                                   BackwardArguments& arguments) const override {
    const std::vector<at::Tensor> fields = whole_fields(context, arguments.inputs[0]);
    const at::Tensor by_prediction = at::empty_like(fields[0]);
    {
      const at::Tensor scratch = terms_.make_scratch(by_prediction);
      kernels::field_loss_gradient(context.queue, terms_.comparison(context, fields, scratch),
                                   outer_gradient(arguments), by_prediction.data_ptr());
    }
    at::Tensor gradient =
        at::empty({members() * parts(), part_elements()}, by_prediction.options());
    gradient.zero_();
    for (std::int64_t member = 0; member < members(); ++member) {
      kernels::deal_rows(context.queue, by_prediction.const_data_ptr<double>(), slots_of(member),
                         part_of(gradient, member, 0).data_ptr<double>(), batch_, rows_,
                         in_row_ * channels_);
    }
    return {gradient};
  }

 private:
  static FieldShape one_step(FieldShape shape) {
    shape.rollout = 1;
    shape.push_forward = 0;
    return shape;
  }

  std::int64_t parts() const { return static_cast<std::int64_t>(terms_.inputs()); }
  std::int64_t elements() const { return batch_ * rows_ * in_row_ * channels_; }
  std::int64_t slots() const {
    return static_cast<std::int64_t>(rows_of_members_.front().slots.size());
  }
  std::int64_t part_elements() const { return batch_ * slots() * in_row_ * channels_; }
  std::int64_t members() const { return static_cast<std::int64_t>(rows_of_members_.size()); }

  // The rows of a member by slot.
  const std::vector<std::int64_t>& slots_of(std::int64_t member) const {
    return rows_of_members_[static_cast<std::size_t>(member)].slots;
  }
  at::Tensor part_of(const at::Tensor& gathered, std::int64_t member, std::int64_t part) const {
    return gathered.view({members() * parts(), part_elements()}).select(0, member * parts() + part);
  }

  // Prediction, target and mask of all rows. Channels come last in predictions, before the points
  // in the others.
  std::vector<at::Tensor> whole_fields(const Context& context, const at::Tensor& gathered) const {
    std::vector<at::Tensor> fields;
    for (std::int64_t part = 0; part < parts(); ++part) {
      fields.push_back(at::empty({elements()}, gathered.options()));
      for (std::int64_t member = 0; member < members(); ++member) {
        kernels::gather_rows(context.queue,
                             part_of(gathered, member, part).const_data_ptr<double>(),
                             slots_of(member), fields.back().data_ptr<double>(),
                             part == 0 ? batch_ : batch_ * channels_, rows_,
                             part == 0 ? in_row_ * channels_ : in_row_);
      }
    }
    return fields;
  }

  FieldLossTerms terms_;
  std::int64_t batch_;
  std::int64_t channels_;
  std::int64_t rows_;
  std::int64_t in_row_;
  std::vector<FieldRows> rows_of_members_;
};

}  // namespace

bool needs_whole_field(const std::string& loss) {
  return FieldLossTerms::form(loss).differences;
}
std::unique_ptr<Node> make_compared_fields(const FieldShape& shape, std::int64_t batch,
                                           std::int64_t step) {
  return std::make_unique<ComparedFields>(shape, batch, step);
}
std::unique_ptr<Node> make_whole_field_loss(const std::string& loss, const FieldShape& whole,
                                            std::vector<FieldRows> rows_of_members,
                                            std::int64_t batch) {
  return std::make_unique<WholeFieldLoss>(loss, whole, std::move(rows_of_members), batch);
}

}  // namespace garonne::nn
