#include "nn/spectral/spectrum_collectives.hpp"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include <algorithm>

#include "base/collective_bytes.hpp"
#include "base/error.hpp"
#include "nn/allocation_sketch.hpp"
#include "nn/divided_node.hpp"
#include "nn/fields/field_rows.hpp"
#include "nn/node_operations.hpp"

namespace garonne::nn {
namespace {

class SpectrumCollective : public DividedNode {
 public:
  SpectrumCollective(SpectrumCut cut, bool sums) : cut_(std::move(cut)), sums_(sums) {}

  plan::NodeSpec declare(const Declaration& declaration) const override {
    plan::NodeSpec spec;
    spec.kind = sums_ ? "sum_spectrum" : "gather_spectrum";
    spec.cost_key = fmt::format("{} {}x{}x{}{} over {}", spec.kind, cut_.outer, cut_.entries(),
                                cut_.columns, cut_.is_double ? " float64" : "", cut_.members());
    spec.gradient_aliases = {false};
    const std::int64_t bytes = all_elements() * element_bytes(declaration);
    const std::int64_t pieces = declaration.allocation(bytes);
    const plan::NodeCollective sum = {
        "reduce-scatter", bytes, pieces,
        declaration.allocation(
            all_reduce_staging_bytes(all_elements(), element_bytes(declaration), cut_.members()))};
    const plan::NodeCollective gather = {"all-gather", bytes, pieces, 0};
    spec.forward_collective = sums_ ? sum : gather;
    spec.backward_collective = sums_ ? gather : sum;
    // A copy for each member, and zeros behind shorter runs; a copy of the piece.
    int of_members = 0;
    for (std::int64_t member = 0; member < cut_.members(); ++member)
      of_members += cut_.entries_of(member) < cut_.slots() ? 2 : 1;
    const int summing = of_members + 1;
    const int gathering = static_cast<int>(cut_.members()) + 1;
    set_kernels(spec, sums_ ? summing : gathering, sums_ ? gathering : summing);
    spec.forward.transient_bytes = spec.forward_keep.transient_bytes =
        sums_ ? sum_transients(declaration) : gather_transients(declaration);
    spec.backward.transient_bytes =
        sums_ ? gather_transients(declaration) : sum_transients(declaration);
    return spec;
  }

  at::Tensor begin(const Context& context, const DividedPass& pass) const override {
    expect_members(context, cut_.members());
    return sums(pass.direction) ? all_of_part(pass.given) : own_of_all(context, pass.given);
  }
  at::Tensor finish(const Context& context, const DividedPass& pass,
                    const at::Tensor& pieces) const override {
    return sums(pass.direction) ? own_piece(context, pieces) : whole_of(pieces);
  }

 private:
  bool sums(Direction direction) const { return sums_ == (direction == Direction::Forward); }

  // Of the pieces of all members, side by side.
  std::int64_t all_elements() const { return cut_.members() * cut_.piece_elements(); }

  std::int64_t element_bytes(const Declaration& declaration) const {
    return cut_.is_double ? 8 : state_bytes(declaration.precision);
  }

  at::Tensor make_pieces(const at::Tensor& like) const {
    return at::empty({cut_.members(), cut_.outer, cut_.slots(), cut_.columns}, like.options());
  }
  // The run of a member in the tensor of all entries, and in its piece.
  at::Tensor run_of_whole(const at::Tensor& whole, std::int64_t member) const {
    return whole.view({cut_.outer, cut_.entries(), cut_.columns})
        .narrow(1, cut_.begins[static_cast<std::size_t>(member)], cut_.entries_of(member));
  }
  at::Tensor run_of_piece(const at::Tensor& pieces, std::int64_t member) const {
    return pieces.select(0, member).narrow(1, 0, cut_.entries_of(member));
  }

  at::Tensor all_of_part(const at::Tensor& part) const {
    const at::Tensor pieces = make_pieces(part);
    for (std::int64_t member = 0; member < cut_.members(); ++member) {
      const std::int64_t entries = cut_.entries_of(member);
      run_of_piece(pieces, member).copy_(run_of_whole(part, member));
      if (entries < cut_.slots())
        pieces.select(0, member).narrow(1, entries, cut_.slots() - entries).zero_();
    }
    return pieces;
  }
  at::Tensor own_piece(const Context& context, const at::Tensor& pieces) const {
    at::Tensor mine = at::empty({cut_.outer, cut_.slots(), cut_.columns}, pieces.options());
    mine.copy_(pieces.select(0, context.tensor_member));
    return mine;
  }

  at::Tensor own_of_all(const Context& context, const at::Tensor& mine) const {
    const at::Tensor pieces = make_pieces(mine);
    pieces.select(0, context.tensor_member)
        .copy_(mine.view({cut_.outer, cut_.slots(), cut_.columns}));
    return pieces;
  }
  at::Tensor whole_of(const at::Tensor& pieces) const {
    const at::Tensor whole =
        at::empty({cut_.outer, cut_.entries(), cut_.columns}, pieces.options());
    for (std::int64_t member = 0; member < cut_.members(); ++member)
      run_of_whole(whole, member).copy_(run_of_piece(pieces, member));
    return whole;
  }

  std::int64_t sum_transients(const Declaration& declaration) const {
    AllocationSketch sketch(declaration);
    const std::int64_t element = element_bytes(declaration);
    const std::int64_t pieces = sketch.make(all_elements(), element);
    sketch.drop(sketch.make(all_reduce_staging_bytes(all_elements(), element, cut_.members()), 1));
    sketch.make(cut_.piece_elements(), element);
    sketch.drop(pieces);
    return sketch.transient_bytes();
  }
  std::int64_t gather_transients(const Declaration& declaration) const {
    return declaration.allocation(all_elements() * element_bytes(declaration));
  }

  SpectrumCut cut_;
  bool sums_;
};

}  // namespace

std::int64_t SpectrumCut::entries_of(std::int64_t member) const {
  const auto m = static_cast<std::size_t>(member);
  return begins[m + 1] - begins[m];
}

std::int64_t SpectrumCut::slots() const {
  std::int64_t longest = 0;
  for (std::int64_t member = 0; member < members(); ++member)
    longest = std::max(longest, entries_of(member));
  return longest;
}

std::vector<std::int64_t> even_runs(std::int64_t indices, std::int64_t members,
                                    std::int64_t factor) {
  std::vector<std::int64_t> begins;
  for (std::int64_t member = 0; member <= members; ++member)
    begins.push_back(even_begin(indices, members, member) * factor);
  return begins;
}

std::unique_ptr<Node> make_sum_spectrum(SpectrumCut cut) {
  return std::make_unique<SpectrumCollective>(std::move(cut), /*sums=*/true);
}
std::unique_ptr<Node> make_gather_spectrum(SpectrumCut cut) {
  return std::make_unique<SpectrumCollective>(std::move(cut), /*sums=*/false);
}

}  // namespace garonne::nn
