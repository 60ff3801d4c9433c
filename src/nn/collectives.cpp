#include "nn/collectives.hpp"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/collective_bytes.hpp"
#include "base/error.hpp"
#include "base/number_type.hpp"
#include "nn/divided_node.hpp"
#include "nn/node_operations.hpp"

namespace garonne::nn {
namespace {

class CollectiveNode : public DividedNode {
 public:
  CollectiveNode(std::int64_t elements, int ranks, SumWire wire)
      : elements_(elements), ranks_(ranks), wire_(wire) {
    expect(elements % ranks == 0, "a value is cut into equal pieces");
  }

 protected:
  bool is_narrow(Precision precision) const {
    return precision == Precision::BFloat16 && wire_ == SumWire::Compute;
  }
  // Sums are made in a wider copy.
  bool is_wide(Precision precision) const {
    return precision == Precision::BFloat16 && wire_ == SumWire::Gradient;
  }
  std::int64_t sum_bytes(Precision precision) const {
    return is_narrow(precision) ? compute_bytes(precision) : state_bytes(precision);
  }
  std::optional<NumberType> wire_of(Precision precision) const {
    if (!is_narrow(precision)) return std::nullopt;
    return compute_type(precision);
  }

  // A copy in the type that sums travel in.
  at::Tensor copy_to_sum(const Context& context, const at::Tensor& x) const {
    if (is_wide(context.precision)) return x.to(at::kFloat);
    at::Tensor copy = at::empty_like(x);
    copy.copy_(x);
    return copy;
  }
  at::ScalarType result_type(const Context& context, const at::Tensor& sum) const {
    return is_wide(context.precision) ? at::kBFloat16 : sum.scalar_type();
  }

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
    return staging +
           (is_wide(declaration.precision) ? declaration.allocation(elements_ * bytes) : 0);
  }

  // A sum in the storage of the result; of bfloat16 in a wider copy.
  plan::NodeCollective sum_of_all(const Declaration& declaration) const {
    const std::int64_t bytes = sum_bytes(declaration.precision);
    return {"all-reduce", elements_ * bytes,
            is_wide(declaration.precision) ? declaration.allocation(elements_ * bytes) : 0,
            declaration.allocation(all_reduce_staging_bytes(elements_, bytes, ranks_)),
            wire_of(declaration.precision)};
  }
  // A sum in a copy, of which each keeps its piece.
  plan::NodeCollective sum_of_pieces(const Declaration& declaration) const {
    const std::int64_t bytes = sum_bytes(declaration.precision);
    return {"reduce-scatter", elements_ * bytes, declaration.allocation(elements_ * bytes),
            declaration.allocation(all_reduce_staging_bytes(elements_, bytes, ranks_)),
            wire_of(declaration.precision)};
  }
  plan::NodeCollective gather_of(std::int64_t element_bytes) const {
    return {"all-gather", elements_ * element_bytes, 0, 0};
  }

  // A copy, and of a wider one the way back.
  int sum_kernels(const Declaration& declaration) const {
    return is_wide(declaration.precision) ? 2 : 1;
  }

  at::Tensor begin_sum_of_all(const Context& context, const DividedPass& pass) const {
    const bool in_place = pass.over.defined() && !is_wide(context.precision);
    return in_place ? pass.over : copy_to_sum(context, pass.given);
  }
  at::Tensor finish_sum_of_all(const Context& context, const DividedPass& pass,
                               const at::Tensor& sum) const {
    if (!is_wide(context.precision)) return sum;
    at::Tensor result = pass.over.defined()
                            ? pass.over
                            : at::empty_like(sum, sum.options().dtype(result_type(context, sum)));
    return result.copy_(sum);
  }

  // The cut is along rows, so what follows still reads [rows, columns].
  std::int64_t piece_rows(const at::Tensor& x) const { return elements_ / ranks_ / x.size(-1); }

  at::Tensor own_piece(const Context& context, const at::Tensor& whole, at::ScalarType type) const {
    const std::int64_t columns = whole.size(-1);
    const std::int64_t rows = piece_rows(whole);
    at::Tensor mine = at::empty({rows, columns}, whole.options().dtype(type));
    mine.copy_(whole.view({-1, columns}).narrow(0, context.tensor_member * rows, rows));
    return mine;
  }

  at::Tensor begin_gather(const Context& context, const at::Tensor& mine) const {
    expect_members(context, ranks_);
    const std::int64_t columns = mine.size(-1);
    const std::int64_t rows = piece_rows(mine);
    at::Tensor whole = at::empty({ranks_ * rows, columns}, mine.options());
    whole.narrow(0, context.tensor_member * rows, rows).copy_(mine.view({rows, columns}));
    return whole;
  }

  std::int64_t elements_;
  int ranks_;
  SumWire wire_;
};

class CopyToTensor : public CollectiveNode {
 public:
  using CollectiveNode::CollectiveNode;

  plan::NodeSpec declare(const Declaration& declaration) const override {
    plan::NodeSpec spec = make_spec("copy_to_tensor");
    spec.overwrites_gradient = {true};
    spec.backward.transient_bytes = sum_transients(declaration);
    spec.backward_collective = sum_of_all(declaration);
    set_kernels(spec, 1, sum_kernels(declaration));
    return spec;
  }
  at::Tensor forward(const Context&, const std::vector<at::Tensor>& inputs,
                     const std::vector<at::Tensor>&, Record*) const override {
    at::Tensor out = at::empty_like(inputs[0]);
    out.copy_(inputs[0]);
    return out;
  }
  at::Tensor begin(const Context& context, const DividedPass& pass) const override {
    return begin_sum_of_all(context, pass);
  }
  at::Tensor finish(const Context& context, const DividedPass& pass,
                    const at::Tensor& exchanged) const override {
    return finish_sum_of_all(context, pass, exchanged);
  }
};

class ReduceFromTensor : public CollectiveNode {
 public:
  using CollectiveNode::CollectiveNode;

  plan::NodeSpec declare(const Declaration& declaration) const override {
    plan::NodeSpec spec = make_spec("reduce_from_tensor");
    spec.gradient_aliases = {true};
    spec.forward.transient_bytes = spec.forward_keep.transient_bytes = sum_transients(declaration);
    spec.forward_collective = sum_of_all(declaration);
    set_kernels(spec, sum_kernels(declaration), 0);
    return spec;
  }
  at::Tensor begin(const Context& context, const DividedPass& pass) const override {
    return begin_sum_of_all(context, pass);
  }
  at::Tensor finish(const Context& context, const DividedPass& pass,
                    const at::Tensor& exchanged) const override {
    return finish_sum_of_all(context, pass, exchanged);
  }
  std::vector<at::Tensor> backward(const Context&, BackwardArguments& arguments) const override {
    return {arguments.output_gradient};
  }
};

// A gather one way and the piece of a sum the other.
class GatherAndScatter : public CollectiveNode {
 public:
  GatherAndScatter(std::int64_t elements, int ranks, SumWire wire, Direction gathers)
      : CollectiveNode(elements, ranks, wire), gathers_(gathers) {}

  plan::NodeSpec declare(const Declaration& declaration) const override {
    const bool forward = gathers_ == Direction::Forward;
    plan::NodeSpec spec = make_spec(forward ? "gather_to_tensor" : "scatter_from_tensor");
    const plan::NodeCollective gather = gather_of(declaration.element_bytes());
    const plan::NodeCollective scatter = sum_of_pieces(declaration);
    // The piece is cut out of the copy when the staging is gone.
    const std::int64_t piece = declaration.tensor(elements_ / ranks_);
    const std::int64_t sum =
        scatter.buffer_bytes + std::max<std::int64_t>(0, scatter.staging_bytes - piece);
    spec.forward.transient_bytes = spec.forward_keep.transient_bytes = forward ? 0 : sum;
    spec.backward.transient_bytes = forward ? sum : 0;
    spec.forward_collective = forward ? gather : scatter;
    spec.backward_collective = forward ? scatter : gather;
    // A copy before a gather; before a sum, and of the piece.
    set_kernels(spec, forward ? 1 : 2, forward ? 2 : 1);
    return spec;
  }
  at::Tensor begin(const Context& context, const DividedPass& pass) const override {
    return pass.direction == gathers_ ? begin_gather(context, pass.given)
                                      : copy_to_sum(context, pass.given);
  }
  at::Tensor finish(const Context& context, const DividedPass& pass,
                    const at::Tensor& exchanged) const override {
    if (pass.direction == gathers_) return exchanged;
    return own_piece(context, exchanged, result_type(context, exchanged));
  }

 private:
  Direction gathers_;
};

class GatherStatistics : public CollectiveNode {
 public:
  GatherStatistics(std::int64_t elements, int ranks)
      : CollectiveNode(elements, ranks, SumWire::Gradient) {}

  plan::NodeSpec declare(const Declaration&) const override {
    plan::NodeSpec spec = make_spec("gather_statistics");
    spec.forward_collective = gather_of(8);
    return spec;
  }
  at::Tensor begin(const Context& context, const DividedPass& pass) const override {
    return begin_gather(context, pass.given);
  }
  at::Tensor finish(const Context&, const DividedPass&,
                    const at::Tensor& exchanged) const override {
    return exchanged;
  }
  std::vector<at::Tensor> backward(const Context& context,
                                   BackwardArguments& arguments) const override {
    return {own_piece(context, arguments.output_gradient, at::kDouble)};
  }
};

}  // namespace

std::unique_ptr<Node> make_copy_to_tensor(std::int64_t elements, int ranks, SumWire wire) {
  return std::make_unique<CopyToTensor>(elements, ranks, wire);
}
std::unique_ptr<Node> make_reduce_from_tensor(std::int64_t elements, int ranks, SumWire wire) {
  return std::make_unique<ReduceFromTensor>(elements, ranks, wire);
}
std::unique_ptr<Node> make_gather_to_tensor(std::int64_t elements, int ranks, SumWire wire) {
  return std::make_unique<GatherAndScatter>(elements, ranks, wire, Direction::Forward);
}
std::unique_ptr<Node> make_scatter_from_tensor(std::int64_t elements, int ranks, SumWire wire) {
  return std::make_unique<GatherAndScatter>(elements, ranks, wire, Direction::Backward);
}
std::unique_ptr<Node> make_gather_statistics(std::int64_t elements, int ranks) {
  return std::make_unique<GatherStatistics>(elements, ranks);
}

}  // namespace garonne::nn
