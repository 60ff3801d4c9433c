#include "nn/collectives.hpp"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include <cstring>

#include "base/collective_bytes.hpp"
#include "base/error.hpp"

namespace garonne::nn {
namespace {

dist::Transport& transport_of(const Context& context, int ranks) {
  expect(context.tensor != nullptr && context.tensor->size() == ranks,
         "a node of a cut model runs without the transport of its tensor group");
  return *context.tensor;
}

// Sums travel in the type that gradients are summed in: bfloat16 as float32.
std::int64_t sum_bytes(Precision precision) {
  return precision == Precision::Float64 ? 8 : 4;
}

// Sums `x`, whole or this member's piece of it, in place.
void sum_in_place(dist::Transport& transport, at::Tensor x, bool scatter) {
  const bool wide = x.scalar_type() == at::kBFloat16;
  at::Tensor summed = wide ? x.to(at::kFloat) : x;
  const auto type =
      summed.scalar_type() == at::kDouble ? dist::ScalarType::Float64 : dist::ScalarType::Float32;
  at::Tensor staging = at::empty(
      {all_reduce_staging_bytes(summed.numel(), dist::scalar_bytes(type), transport.size())},
      x.options().dtype(at::kByte));
  const dist::Ticket ticket =
      scatter
          ? transport.reduce_scatter_sum(summed.data_ptr(), summed.numel(), type,
                                         staging.data_ptr())
          : transport.all_reduce_sum(summed.data_ptr(), summed.numel(), type, staging.data_ptr());
  transport.wait(ticket);
  if (wide) x.copy_(summed);
}

class CollectiveNode : public Node {
 public:
  CollectiveNode(std::int64_t elements, int ranks) : elements_(elements), ranks_(ranks) {
    expect(elements % ranks == 0, "a value is cut into equal pieces");
  }

 protected:
  plan::NodeSpec make_spec(const std::string& kind) const {
    plan::NodeSpec spec;
    spec.kind = kind;
    spec.cost_key = fmt::format("{} {} over {}", kind, elements_, ranks_);
    spec.gradient_aliases = {false};
    return spec;
  }

  // Staging, and the wider copy where there is one.
  std::int64_t sum_transients(const Declaration& declaration) const {
    const std::int64_t bytes = sum_bytes(declaration.precision);
    const std::int64_t staging =
        declaration.allocation(all_reduce_staging_bytes(elements_, bytes, ranks_));
    const bool wide = declaration.precision == Precision::BFloat16;
    return staging + (wide ? declaration.allocation(elements_ * bytes) : 0);
  }
  plan::NodeCollective sum_of(const std::string& kind, const Declaration& declaration) const {
    return {kind, elements_ * sum_bytes(declaration.precision)};
  }
  plan::NodeCollective gather_of(const Declaration& declaration) const {
    return {"all-gather", elements_ * declaration.element_bytes()};
  }

  at::Tensor sum_of_pieces(const Context& context, const at::Tensor& x) const {
    at::Tensor whole = at::empty_like(x);
    whole.copy_(x);
    dist::Transport& transport = transport_of(context, ranks_);
    sum_in_place(transport, whole, /*scatter=*/true);
    return own_piece(transport.member(), whole);
  }

  // The cut is along rows, so what follows still reads [rows, columns].
  at::Tensor own_piece(int member, const at::Tensor& whole) const {
    const std::int64_t columns = whole.size(-1);
    const std::int64_t rows = elements_ / ranks_ / columns;
    at::Tensor mine = at::empty({rows, columns}, whole.options());
    mine.copy_(whole.view({-1, columns}).narrow(0, member * rows, rows));
    return mine;
  }

  at::Tensor gather(const Context& context, const at::Tensor& mine) const {
    dist::Transport& transport = transport_of(context, ranks_);
    const std::int64_t columns = mine.size(-1);
    const std::int64_t rows = elements_ / ranks_ / columns;
    at::Tensor whole = at::empty({ranks_ * rows, columns}, mine.options());
    whole.narrow(0, transport.member() * rows, rows).copy_(mine.view({rows, columns}));
    transport.wait(transport.all_gather(whole.data_ptr(), elements_,
                                        static_cast<std::int64_t>(whole.element_size())));
    return whole;
  }

  std::int64_t elements_;
  int ranks_;
};

class CopyToTensor : public CollectiveNode {
 public:
  using CollectiveNode::CollectiveNode;

  plan::NodeSpec declare(const Declaration& declaration) const override {
    plan::NodeSpec spec = make_spec("copy_to_tensor");
    spec.overwrites_gradient = {true};
    spec.backward.transient_bytes = sum_transients(declaration);
    spec.backward_collective = sum_of("all-reduce", declaration);
    return spec;
  }
  at::Tensor forward(const Context&, const std::vector<at::Tensor>& inputs,
                     const std::vector<at::Tensor>&, Record*) const override {
    at::Tensor out = at::empty_like(inputs[0]);
    out.copy_(inputs[0]);
    return out;
  }
  std::vector<at::Tensor> backward(const Context& context,
                                   BackwardArguments& arguments) const override {
    at::Tensor gradient = arguments.output_gradient;
    if (!arguments.overwrite[0]) {
      gradient = at::empty_like(arguments.output_gradient);
      gradient.copy_(arguments.output_gradient);
    }
    sum_in_place(transport_of(context, ranks_), gradient, /*scatter=*/false);
    return {gradient};
  }
};

class ReduceFromTensor : public CollectiveNode {
 public:
  using CollectiveNode::CollectiveNode;

  plan::NodeSpec declare(const Declaration& declaration) const override {
    plan::NodeSpec spec = make_spec("reduce_from_tensor");
    spec.gradient_aliases = {true};
    spec.forward.transient_bytes = spec.forward_keep.transient_bytes = sum_transients(declaration);
    spec.forward_collective = sum_of("all-reduce", declaration);
    return spec;
  }
  at::Tensor forward(const Context& context, const std::vector<at::Tensor>& inputs,
                     const std::vector<at::Tensor>&, Record*) const override {
    at::Tensor out = at::empty_like(inputs[0]);
    out.copy_(inputs[0]);
    sum_in_place(transport_of(context, ranks_), out, /*scatter=*/false);
    return out;
  }
  std::vector<at::Tensor> backward(const Context&, BackwardArguments& arguments) const override {
    return {arguments.output_gradient};
  }
};

class GatherToTensor : public CollectiveNode {
 public:
  GatherToTensor(std::int64_t elements, int ranks) : CollectiveNode(elements, ranks) {}

  plan::NodeSpec declare(const Declaration& declaration) const override {
    plan::NodeSpec spec = make_spec("gather_to_tensor");
    // The piece is cut out when the staging is gone.
    const std::int64_t whole = declaration.tensor(elements_);
    const std::int64_t piece = declaration.tensor(elements_ / ranks_);
    spec.backward.transient_bytes =
        whole + std::max<std::int64_t>(0, sum_transients(declaration) - piece);
    spec.forward_collective = gather_of(declaration);
    spec.backward_collective = sum_of("reduce-scatter", declaration);
    return spec;
  }
  at::Tensor forward(const Context& context, const std::vector<at::Tensor>& inputs,
                     const std::vector<at::Tensor>&, Record*) const override {
    return gather(context, inputs[0]);
  }
  std::vector<at::Tensor> backward(const Context& context,
                                   BackwardArguments& arguments) const override {
    return {sum_of_pieces(context, arguments.output_gradient)};
  }
};

class ScatterFromTensor : public CollectiveNode {
 public:
  using CollectiveNode::CollectiveNode;

  plan::NodeSpec declare(const Declaration& declaration) const override {
    plan::NodeSpec spec = make_spec("scatter_from_tensor");
    const std::int64_t whole = declaration.tensor(elements_);
    const std::int64_t piece = declaration.tensor(elements_ / ranks_);
    spec.forward.transient_bytes = spec.forward_keep.transient_bytes =
        whole + std::max<std::int64_t>(0, sum_transients(declaration) - piece);
    spec.forward_collective = sum_of("reduce-scatter", declaration);
    spec.backward_collective = gather_of(declaration);
    return spec;
  }
  at::Tensor forward(const Context& context, const std::vector<at::Tensor>& inputs,
                     const std::vector<at::Tensor>&, Record*) const override {
    return sum_of_pieces(context, inputs[0]);
  }
  std::vector<at::Tensor> backward(const Context& context,
                                   BackwardArguments& arguments) const override {
    return {gather(context, arguments.output_gradient)};
  }
};

class GatherStatistics : public CollectiveNode {
 public:
  using CollectiveNode::CollectiveNode;

  plan::NodeSpec declare(const Declaration&) const override {
    plan::NodeSpec spec = make_spec("gather_statistics");
    spec.forward_collective = {"all-gather", elements_ * 8};
    return spec;
  }
  at::Tensor forward(const Context& context, const std::vector<at::Tensor>& inputs,
                     const std::vector<at::Tensor>&, Record*) const override {
    return gather(context, inputs[0]);
  }
  std::vector<at::Tensor> backward(const Context& context,
                                   BackwardArguments& arguments) const override {
    return {own_piece(transport_of(context, ranks_).member(), arguments.output_gradient)};
  }
};

}  // namespace

std::unique_ptr<Node> make_copy_to_tensor(std::int64_t elements, int ranks) {
  return std::make_unique<CopyToTensor>(elements, ranks);
}
std::unique_ptr<Node> make_reduce_from_tensor(std::int64_t elements, int ranks) {
  return std::make_unique<ReduceFromTensor>(elements, ranks);
}
std::unique_ptr<Node> make_gather_to_tensor(std::int64_t elements, int ranks) {
  return std::make_unique<GatherToTensor>(elements, ranks);
}
std::unique_ptr<Node> make_scatter_from_tensor(std::int64_t elements, int ranks) {
  return std::make_unique<ScatterFromTensor>(elements, ranks);
}
std::unique_ptr<Node> make_gather_statistics(std::int64_t elements, int ranks) {
  return std::make_unique<GatherStatistics>(elements, ranks);
}

}  // namespace garonne::nn
