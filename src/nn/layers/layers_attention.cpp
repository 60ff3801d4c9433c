// Attention, of as many heads of keys and values as of queries or of fewer.
#include <ATen/Functions.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "nn/element_type.hpp"
#include "nn/layers/causal_attention.hpp"
#include "nn/layers/layers.hpp"
#include "nn/layers/tiled_attention.hpp"
#include "nn/node_dropout.hpp"
#include "nn/node_operations.hpp"

namespace garonne::nn {
namespace {

// Two products forward and five backward, half of each masked away.
void set_attention_operations(plan::NodeSpec& spec, Rows rows, std::int64_t heads,
                              std::int64_t head_size) {
  const double product = product_operations(rows.sequence, rows.sequence, head_size) *
                         static_cast<double>(rows.batch * heads) / 2;
  set_operations(spec, 2 * product, 5 * product);
  spec.scores = rows.batch * heads * rows.sequence * rows.sequence;
}

// What nodes do where attention goes in tiles: always with dropout of the weights, else where
// attends_in_tiles().
class InTiles {
 public:
  explicit InTiles(TiledAttentionSizes sizes, AttentionDropout dropout = {})
      : sizes_(sizes), dropout_(std::move(dropout)) {}

  bool used(const Declaration& declaration) const {
    return used(declaration.precision, declaration.device.kind);
  }
  bool used(const Context& context) const { return used(context.precision, context.queue.device); }

  // Of a spec that has kind and key otherwise: key, record, transients and kernels.
  void declare(const Declaration& declaration, plan::NodeSpec& spec) const {
    spec.cost_key += dropout_.probability > 0 ? " tiled dropout true" : " tiled";
    const TiledAttentionBytes bytes = tiled_attention_bytes(declaration, sizes_);
    spec.private_slot_bytes = {bytes.log_sums};
    // The sums that its result would give are made of weights and their gradients.
    spec.pins_inputs = {true};
    spec.forward.transient_bytes = bytes.forward + bytes.log_sums;
    spec.forward_keep.transient_bytes = bytes.forward;
    spec.backward.transient_bytes = bytes.backward;
    const TiledAttentionKernels kernels = tiled_attention_kernels(declaration, sizes_);
    set_kernels(spec, kernels.forward, kernels.backward);
  }

  // Of queries, keys and values as tiled_attention() takes them; [rows, heads · head size].
  at::Tensor forward(const Context& context, const at::Tensor& qkv, Record* record) const {
    const at::Tensor log_sums =
        at::empty({sizes_.batch, sizes_.heads(), sizes_.sequence},
                  qkv.options().dtype(state_scalar_type(context.precision)));
    if (record != nullptr) record->slots = {log_sums};
    at::Tensor result = at::empty(
        {sizes_.batch * sizes_.sequence, sizes_.heads() * sizes_.head_size}, qkv.options());
    tiled_attention(context, sizes_, mask(context), qkv, view_heads(result), log_sums);
    return result;
  }

  // `of_qkv` is written.
  void backward(const Context& context, const at::Tensor& qkv, const BackwardArguments& arguments,
                const at::Tensor& of_qkv) const {
    tiled_attention_backward(context, sizes_, mask(context), qkv, arguments.record->slots[0],
                             view_heads(arguments.output_gradient), of_qkv);
  }

 private:
  bool used(Precision precision, DeviceKind device) const {
    return dropout_.probability > 0 || attends_in_tiles(precision, device);
  }
  at::Tensor view_heads(const at::Tensor& rows) const {
    return rows.view(
        {sizes_.batch, sizes_.sequence, sizes_.groups, sizes_.members, sizes_.head_size});
  }
  AttentionMask mask(const Context& context) const {
    return {dropout_of(context, dropout_.name, dropout_.probability), dropout_.first_head,
            context.samples};
  }

  TiledAttentionSizes sizes_;
  AttentionDropout dropout_;
};

class Attention : public Node {
 public:
  Attention(Rows rows, std::int64_t heads, std::int64_t head_size, AttentionDropout dropout)
      : rows_(rows),
        heads_(heads),
        head_size_(head_size),
        in_tiles_({rows.batch, rows.sequence, heads, /*members=*/1, head_size},
                  std::move(dropout)) {}

  plan::NodeSpec declare(const Declaration& declaration) const override {
    plan::NodeSpec spec;
    spec.kind = "attention";
    spec.cost_key =
        fmt::format("attention {}x{}x{}x{}", rows_.batch, rows_.sequence, heads_, head_size_);
    spec.gradient_aliases = {false};
    set_attention_operations(spec, rows_, heads_, head_size_);
    if (in_tiles_.used(declaration)) {
      in_tiles_.declare(declaration, spec);
      return spec;
    }
    const AttentionBytes bytes =
        attention_bytes(declaration, {rows_.batch, rows_.sequence, heads_, head_size_});
    spec.private_slot_bytes = {bytes.log_sums};
    spec.pins_inputs = {true};
    spec.pins_output = true;
    // A recorded forward makes the log-sum-exp its slot; an unrecorded one drops it.
    spec.forward.transient_bytes = bytes.forward + bytes.log_sums;
    spec.forward_keep.transient_bytes = bytes.forward;
    // The three gradients are made apart, beside the scratch, then stacked into the gradient of
    // qkv, which is the output and not a transient; the scratch is gone by then.
    const std::int64_t apart = 3 * declaration.tensor(rows_.count() * heads_ * head_size_);
    const std::int64_t stacked = declaration.tensor(3 * rows_.count() * heads_ * head_size_);
    spec.backward.transient_bytes = apart + std::max<std::int64_t>(0, bytes.backward - stacked);
    // Sums of rows, the gradients, queries' in their type, and the three side by side.
    set_kernels(spec, 1, 4);
    return spec;
  }

  at::Tensor forward(const Context& context, const std::vector<at::Tensor>& inputs,
                     const std::vector<at::Tensor>&, Record* record) const override {
    if (in_tiles_.used(context))
      return in_tiles_.forward(context, by_part(inputs[0]).transpose(2, 3), record);
    const auto [result, log_sums] = causal_attention(context.queue, parts(inputs[0]));
    if (record != nullptr) record->slots = {log_sums};
    // Detached, since a view would hold the tensor that it is one of.
    return result.transpose(1, 2).reshape({rows_.count(), heads_ * head_size_}).detach();
  }

  std::vector<at::Tensor> backward(const Context& context,
                                   BackwardArguments& arguments) const override {
    if (in_tiles_.used(context)) {
      at::Tensor gradient = at::empty_like(arguments.inputs[0]);
      in_tiles_.backward(context, by_part(arguments.inputs[0]).transpose(2, 3), arguments,
                         by_part(gradient).transpose(2, 3));
      return {gradient};
    }
    const auto [of_query, of_key, of_value] = causal_attention_backward(
        context.queue, parts(arguments.inputs[0]), by_head(arguments.output_gradient),
        {by_head(arguments.output), arguments.record->slots[0]});
    const at::Tensor gradient = at::stack(
        {of_query.transpose(1, 2), of_key.transpose(1, 2), of_value.transpose(1, 2)}, /*dim=*/2);
    return {gradient.view_as(arguments.inputs[0])};
  }

 private:
  // [rows, heads · head size] as [batch, heads, sequence, head size].
  at::Tensor by_head(const at::Tensor& rows) const {
    return rows.view({rows_.batch, rows_.sequence, heads_, head_size_}).transpose(1, 2);
  }

  // Queries, keys and values side by side: [batch, sequence, 3, heads, head size].
  at::Tensor by_part(const at::Tensor& x) const {
    return x.view({rows_.batch, rows_.sequence, 3, heads_, head_size_});
  }
  // The same as [batch, heads, sequence, head size] each.
  AttentionParts parts(const at::Tensor& x) const {
    const at::Tensor all = by_part(x);
    const auto part = [&](std::int64_t which) { return all.select(2, which).transpose(1, 2); };
    return {part(0), part(1), part(2)};
  }

  Rows rows_;
  std::int64_t heads_;
  std::int64_t head_size_;
  InTiles in_tiles_;
};

// Without tiles one call for each member of the groups: its queries in all groups, with the groups'
// keys and values, which are then nowhere repeated.
class GroupedAttention : public Node {
 public:
  GroupedAttention(Rows rows, std::int64_t groups, std::int64_t members, std::int64_t head_size)
      : rows_(rows),
        groups_(groups),
        members_(members),
        head_size_(head_size),
        in_tiles_({rows.batch, rows.sequence, groups, members, head_size}) {}

  plan::NodeSpec declare(const Declaration& declaration) const override {
    plan::NodeSpec spec;
    spec.kind = "grouped_attention";
    spec.cost_key = fmt::format("grouped_attention {}x{}x{}x{}x{}", rows_.batch, rows_.sequence,
                                groups_, members_, head_size_);
    spec.gradient_aliases = {false};
    set_attention_operations(spec, rows_, groups_ * members_, head_size_);
    if (in_tiles_.used(declaration)) {
      in_tiles_.declare(declaration, spec);
      return spec;
    }
    const AttentionBytes bytes =
        attention_bytes(declaration, {rows_.batch, rows_.sequence, groups_, head_size_});
    spec.private_slot_bytes.assign(static_cast<std::size_t>(members_), bytes.log_sums);
    spec.pins_inputs = {true};
    spec.pins_output = true;
    // Results of a member, or its gradients, are made apart and put into their places.
    const std::int64_t part = declaration.tensor(part_elements());
    spec.forward_keep.transient_bytes = bytes.forward + part;
    spec.forward.transient_bytes = spec.forward_keep.transient_bytes + bytes.log_sums;
    const std::int64_t total =
        sums_apart(declaration.precision)
            ? declaration.allocation(part_elements() * state_bytes(declaration.precision))
            : 0;
    // The gradients of one member among several are copied to stand side by side, and on a GPU in
    // bfloat16 its results too; a term is converted to the type of the sums before it is added.
    const bool copies_both =
        declaration.device.is_gpu() && declaration.precision == Precision::BFloat16;
    const std::int64_t copied = members_ > 1 ? (copies_both ? 2 : 1) * part : 0;
    spec.backward.transient_bytes = 3 * part + 2 * total + std::max(copied + bytes.backward, total);
    const int members = static_cast<int>(members_);
    set_kernels(spec, 2 * members, 6 * members);
    return spec;
  }

  at::Tensor forward(const Context& context, const std::vector<at::Tensor>& inputs,
                     const std::vector<at::Tensor>&, Record* record) const override {
    if (in_tiles_.used(context)) return in_tiles_.forward(context, by_group(inputs[0]), record);
    at::Tensor out =
        at::empty({rows_.count(), groups_ * members_ * head_size_}, inputs[0].options());
    if (record != nullptr) record->slots.clear();
    for (std::int64_t member = 0; member < members_; ++member) {
      const auto [result, log_sums] = causal_attention(context.queue, parts(inputs[0], member));
      of_member(out, members_, member).copy_(result);
      if (record != nullptr) record->slots.push_back(log_sums);
    }
    return out;
  }

  std::vector<at::Tensor> backward(const Context& context,
                                   BackwardArguments& arguments) const override {
    const at::Tensor& x = arguments.inputs[0];
    at::Tensor gradient = at::empty_like(x);
    if (in_tiles_.used(context)) {
      in_tiles_.backward(context, by_group(x), arguments, by_group(gradient));
      return {gradient};
    }
    // Of keys and of values: over the members in their order, in the type of sums.
    at::Tensor totals[2];
    for (std::int64_t member = 0; member < members_; ++member) {
      const AttentionParts made = causal_attention_backward(
          context.queue, parts(x, member), of_member(arguments.output_gradient, members_, member),
          {of_member(arguments.output, members_, member),
           arguments.record->slots[static_cast<std::size_t>(member)]});
      of_member(gradient, members_ + 2, member).copy_(made[0]);
      for (std::int64_t which = 0; which < 2; ++which) {
        const at::Tensor& term = made[static_cast<std::size_t>(which) + 1];
        at::Tensor place = of_member(gradient, members_ + 2, members_ + which);
        at::Tensor& total = totals[which];
        if (member == 0 && sums_apart(context.precision)) {
          total = term.to(state_scalar_type(context.precision));
        } else if (member == 0) {
          place.copy_(term);
          total = place;
        } else {
          total.add_(term);
        }
        if (member + 1 == members_ && sums_apart(context.precision)) place.copy_(total);
      }
    }
    return {gradient};
  }

 private:
  std::int64_t part_elements() const { return rows_.count() * groups_ * head_size_; }
  bool sums_apart(Precision precision) const {
    return members_ > 1 && precision == Precision::BFloat16;
  }

  // [batch, sequence, groups, members + 2, head size]
  at::Tensor by_group(const at::Tensor& x) const {
    return x.view({rows_.batch, rows_.sequence, groups_, members_ + 2, head_size_});
  }

  // Head `member` of each of the groups of `heads` in a row, as [batch, groups, sequence, head
  // size].
  at::Tensor of_member(const at::Tensor& rows, std::int64_t heads, std::int64_t member) const {
    return rows.view({rows_.batch, rows_.sequence, groups_, heads, head_size_})
        .select(3, member)
        .transpose(1, 2);
  }
  AttentionParts parts(const at::Tensor& x, std::int64_t member) const {
    const auto part = [&](std::int64_t which) { return of_member(x, members_ + 2, which); };
    return {part(member), part(members_), part(members_ + 1)};
  }

  Rows rows_;
  std::int64_t groups_;
  std::int64_t members_;
  std::int64_t head_size_;
  InTiles in_tiles_;
};

}  // namespace

std::unique_ptr<Node> make_attention(Rows rows, std::int64_t heads, std::int64_t head_size,
                                     AttentionDropout dropout) {
  return std::make_unique<Attention>(rows, heads, head_size, std::move(dropout));
}
std::unique_ptr<Node> make_grouped_attention(Rows rows, std::int64_t groups, std::int64_t members,
                                             std::int64_t head_size) {
  return std::make_unique<GroupedAttention>(rows, groups, members, head_size);
}

}  // namespace garonne::nn
