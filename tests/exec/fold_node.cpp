#include "exec/fold_node.hpp"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include "base/error.hpp"
#include "nn/node_operations.hpp"

namespace garonne::exec {
namespace {

class Fold : public nn::Node {
 public:
  Fold(std::int64_t rows, std::int64_t columns) : rows_(rows), columns_(columns) {}

  plan::NodeSpec declare(const nn::Declaration& declaration) const override {
    plan::NodeSpec spec;
    spec.kind = "fold";
    spec.cost_key = fmt::format("fold {}x{}", rows_, columns_);
    spec.gradient_aliases = {false};
    spec.overwrites_gradient = {true};
    const double elements = static_cast<double>(rows_ * columns_);
    nn::set_operations(spec, elements, 3 * elements);
    // The signs, and the gradient with all of them turned.
    const std::int64_t signs = declaration.allocation(rows_ * columns_);
    const std::int64_t turned = declaration.tensor(rows_ * columns_);
    spec.pins_inputs = {true};
    spec.backward.transient_bytes = turned + signs;

    plan::KeepOption packed;
    packed.name = "signs";
    packed.private_slot_bytes = {signs};
    packed.forward_keep = spec.forward_keep;
    packed.forward_keep.floating_point_operations += 8 * elements;
    packed.backward = spec.backward;
    packed.backward.transient_bytes = turned;
    spec.further_options = {packed};
    return spec;
  }

  at::Tensor forward(const nn::Context&, const std::vector<at::Tensor>& inputs,
                     const std::vector<at::Tensor>&, nn::Record* record) const override {
    if (record != nullptr && keeps_signs(*record)) record->slots = {at::signbit(inputs[0])};
    return at::abs(inputs[0]);
  }

  std::vector<at::Tensor> backward(const nn::Context&,
                                   nn::BackwardArguments& arguments) const override {
    const bool kept = keeps_signs(*arguments.record);
    expect(arguments.record->slots.size() == (kept ? 1 : 0), "a fold has not kept that record");
    const at::Tensor signs = kept ? arguments.record->slots[0] : at::signbit(arguments.inputs[0]);
    const at::Tensor& given = arguments.output_gradient;
    const at::Tensor turned = at::neg(given);
    at::Tensor gradient = arguments.overwrite[0] ? given : at::empty_like(given);
    at::where_out(gradient, signs, turned, given);
    return {gradient};
  }

 private:
  static bool keeps_signs(const nn::Record& record) {
    expect(record.option == 0 || record.option == kept_signs, "a fold is kept in no such way");
    return record.option == kept_signs;
  }

  std::int64_t rows_;
  std::int64_t columns_;
};

}  // namespace

std::unique_ptr<nn::Node> make_fold(std::int64_t rows, std::int64_t columns) {
  return std::make_unique<Fold>(rows, columns);
}

}  // namespace garonne::exec
