#include <ATen/Functions.h>
#include <fmt/format.h>

#include <utility>

#include "base/error.hpp"
#include "nn/layers/causal_attention.hpp"
#include "nn/layers/generator_layers.hpp"
#include "nn/node_operations.hpp"

namespace garonne::nn {
namespace {

class GeneratorNode : public Node {
 public:
  std::vector<at::Tensor> backward(const Context&, BackwardArguments&) const override {
    throw InternalError("a generator runs forward only");
  }
};

class KeptAttention : public GeneratorNode {
 public:
  KeptAttention(std::string name, Rows rows, const AttentionHeads& heads, std::int64_t positions,
                std::unique_ptr<Node> attention, std::shared_ptr<Decoding> decoding)
      : name_(std::move(name)),
        rows_(rows),
        heads_(heads),
        positions_(positions),
        attention_(std::move(attention)),
        decoding_(std::move(decoding)) {}

  plan::NodeSpec declare(const Declaration& declaration) const override {
    plan::NodeSpec spec;
    spec.kind = "kept_attention";
    spec.cost_key = fmt::format("kept_attention {} of {}x{}x{}x{}", rows_.count(), positions_,
                                heads_.groups, heads_.members, heads_.head_size);
    spec.gradient_aliases = {false};
    if (rows_.count() > 1) {
      spec.forward = attention_->declare(declaration).forward;
    } else {
      spec.forward.transient_bytes =
          attention_to_all_bytes(declaration, {.queries = heads_.members,
                                               .keys = positions_,
                                               .heads = heads_.groups,
                                               .head_size = heads_.head_size}) +
          // The result before its heads are put in order.
          declaration.tensor(heads_.groups * heads_.members * heads_.head_size);
      const double product = product_operations(1, positions_, heads_.head_size) *
                             static_cast<double>(heads_.groups * heads_.members);
      spec.forward.floating_point_operations = 2 * product;
      // Keys and values into their places, both products, the scale and the softmax, the result.
      spec.forward.kernels = 7;
    }
    spec.forward_keep = spec.forward;
    return spec;
  }

  at::Tensor forward(const Context& context, const std::vector<at::Tensor>& inputs,
                     const std::vector<at::Tensor>& parameters, Record*) const override {
    const std::int64_t first = decoding_->first;
    const std::int64_t count = rows_.count();
    expect((count == 1 || first == 0) && first + count <= positions_,
           name_ + " goes on where no keys and values are kept");
    const at::Tensor heads = by_group(inputs[0]);
    const at::Tensor& kept = decoding_->kept.at(name_).tensor;
    for (std::int64_t which = 0; which < 2; ++which)
      kept.select(0, which).narrow(0, first, count).copy_(heads.select(2, heads_.members + which));
    if (count > 1) return attention_->forward(context, inputs, parameters, nullptr);
    // Members of a group ask at one position for the same keys: as if they were rows of one head.
    const auto until_here = [&](std::int64_t which) {
      return kept.select(0, which).narrow(0, 0, first + 1).transpose(0, 1).unsqueeze(0);
    };
    const at::Tensor result = attention_to_all(
        context.queue, {heads.narrow(2, 0, heads_.members), until_here(0), until_here(1)});
    return result.reshape({1, heads_.groups * heads_.members * heads_.head_size}).detach();
  }

 private:
  // [rows, groups, members + 2, head size]
  at::Tensor by_group(const at::Tensor& x) const {
    const std::int64_t parts = heads_.members + 2;
    if (heads_.parts_first)
      return x.view({rows_.count(), parts, heads_.groups, heads_.head_size}).transpose(1, 2);
    return x.view({rows_.count(), heads_.groups, parts, heads_.head_size});
  }

  std::string name_;
  Rows rows_;
  AttentionHeads heads_;
  std::int64_t positions_;
  std::unique_ptr<Node> attention_;
  std::shared_ptr<Decoding> decoding_;
};

class AskedRow : public GeneratorNode {
 public:
  AskedRow(std::int64_t hidden, std::shared_ptr<const Decoding> decoding)
      : hidden_(hidden), decoding_(std::move(decoding)) {}

  plan::NodeSpec declare(const Declaration&) const override {
    plan::NodeSpec spec;
    spec.kind = "asked_row";
    spec.cost_key = fmt::format("asked_row {}", hidden_);
    spec.gradient_aliases = {false};
    return spec;
  }

  at::Tensor forward(const Context&, const std::vector<at::Tensor>& inputs,
                     const std::vector<at::Tensor>&, Record*) const override {
    at::Tensor row = at::empty({1, hidden_}, inputs[0].options());
    row.copy_(inputs[0].narrow(0, decoding_->asked, 1));
    return row;
  }

 private:
  std::int64_t hidden_;
  std::shared_ptr<const Decoding> decoding_;
};

class Widened : public GeneratorNode {
 public:
  explicit Widened(std::int64_t elements) : elements_(elements) {}

  plan::NodeSpec declare(const Declaration&) const override {
    plan::NodeSpec spec;
    spec.kind = "widened";
    spec.cost_key = fmt::format("widened {}", elements_);
    spec.gradient_aliases = {false};
    return spec;
  }

  at::Tensor forward(const Context&, const std::vector<at::Tensor>& inputs,
                     const std::vector<at::Tensor>&, Record*) const override {
    at::Tensor wide = at::empty(inputs[0].sizes(), inputs[0].options().dtype(at::kDouble));
    return wide.copy_(inputs[0]);
  }

 private:
  std::int64_t elements_;
};

}  // namespace

std::unique_ptr<Node> make_kept_attention(const std::string& name, Rows rows,
                                          const AttentionHeads& heads, std::int64_t positions,
                                          std::unique_ptr<Node> attention,
                                          std::shared_ptr<Decoding> decoding) {
  expect(rows.batch == 1, "a generator goes through one text");
  decoding->kept[name].shape = {2, positions, heads.groups, heads.head_size};
  return std::make_unique<KeptAttention>(name, rows, heads, positions, std::move(attention),
                                         std::move(decoding));
}
std::unique_ptr<Node> make_asked_row(std::int64_t hidden,
                                     std::shared_ptr<const Decoding> decoding) {
  return std::make_unique<AskedRow>(hidden, std::move(decoding));
}
std::unique_ptr<Node> make_widened(std::int64_t elements) {
  return std::make_unique<Widened>(elements);
}

}  // namespace garonne::nn
