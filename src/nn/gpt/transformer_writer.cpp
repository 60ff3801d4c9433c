#include "nn/gpt/transformer_writer.hpp"

#include <fmt/format.h>

#include <cmath>
#include <numeric>
#include <utility>

#include "base/collective_bytes.hpp"
#include "base/error.hpp"
#include "base/multiples.hpp"
#include "nn/collectives.hpp"

namespace garonne::nn {

void check_tensor_divides(const std::string& key, std::int64_t count, std::int64_t ranks) {
  if (count % ranks == 0) return;
  std::int64_t below = ranks;
  while (count % below != 0) --below;
  std::int64_t above = ranks;
  while (above < count && count % above != 0) ++above;
  throw ConfigError("grid.tensor", fmt::format("{}", ranks),
                    fmt::format("must divide {} = {}; the nearest that do: {}", key, count,
                                ranks > count ? fmt::format("{}", below)
                                              : fmt::format("{} and {}", below, above)));
}

void check_sequence_cut(std::int64_t batch, std::int64_t sequence, const TransformerPart& part) {
  const std::int64_t ranks = part.tensor_ranks;
  if (!part.sequence_parallel || batch * sequence % ranks == 0) return;
  throw ConfigError(
      "grid.sequence_parallel", "true",
      fmt::format("wants train.micro_batch × model.sequence = {} to be a multiple of grid.tensor "
                  "= {}; of train.micro_batch {}",
                  batch * sequence, ranks,
                  nearest_multiples(batch, ranks / std::gcd(ranks, sequence))));
}

TransformerWriter::TransformerWriter(ModelBuilder& builder, const TransformerSizes& sizes,
                                     std::int64_t batch, const TransformerPart& part)
    : builder_(builder),
      sizes_(sizes),
      part_(part),
      ranks_(part.tensor_ranks),
      rows_{batch, sizes.generator.count > 0 ? sizes.generator.count : sizes.sequence},
      stream_rows_(rows_) {
  if (part.sequence_parallel && cut()) {
    stream_rows_.pieces = ranks_;
    stream_rows_.first = part.tensor * stream_rows_.count();
  }
  const std::int64_t vocabulary = sizes.vocabulary;
  vocabulary_.first = piece_begin(vocabulary, ranks_, part.tensor);
  vocabulary_.columns = piece_end(vocabulary, ranks_, part.tensor) - vocabulary_.first;
  vocabulary_.width = piece_elements(vocabulary, ranks_);
}

Box TransformerWriter::cut_of(const std::vector<std::int64_t>& global, std::size_t axis) const {
  return cut_box(global, axis, part_.tensor, ranks_);
}

int TransformerWriter::add_replicated(const std::string& name, std::vector<std::int64_t> shape,
                                      Initialisation initialisation) {
  const int parameter = builder_.add_parameter(name, std::move(shape), initialisation);
  if (cut()) builder_.set_replicated(parameter, stream_rows_.pieces > 1);
  return parameter;
}

int TransformerWriter::of_stream(int value) {
  if (cut() && stream_rows_.pieces == 1) builder_.set_value_replicated(value);
  return value;
}

int TransformerWriter::add_vocabulary_table(const std::string& name) {
  return builder_.add_parameter(name, {vocabulary_.width, sizes_.hidden}, {deviation, 0},
                                cut_of({sizes_.vocabulary, sizes_.hidden}, 0));
}

int TransformerWriter::enter(const std::string& name, int x) {
  if (!cut()) return x;
  const SumWire wire = part_.compute_wire ? SumWire::Compute : SumWire::Gradient;
  auto node = stream_rows_.pieces > 1 ? make_gather_to_tensor(elements(), ranks_, wire)
                                      : make_copy_to_tensor(elements(), ranks_, wire);
  return builder_.add_node(name, std::move(node), {x}, {}, shape());
}

int TransformerWriter::leave(const std::string& name, int x) {
  const SumWire wire = part_.compute_wire ? SumWire::Compute : SumWire::Gradient;
  auto node = stream_rows_.pieces > 1 ? make_scatter_from_tensor(elements(), ranks_, wire)
                                      : make_reduce_from_tensor(elements(), ranks_, wire);
  return of_stream(builder_.add_node(name, std::move(node), {x}, {}, stream_shape()));
}

int TransformerWriter::column_linear(const std::string& name, int x, std::int64_t outputs,
                                     std::vector<std::int64_t> stored, std::size_t axis) {
  const std::int64_t inputs = sizes_.hidden;
  const std::int64_t mine = outputs / ranks_;
  const Box bias_box = cut_of(stored, axis);
  stored.push_back(inputs);
  std::vector<int> parameters = {builder_.add_parameter(name + ".weight", {mine, inputs},
                                                        {deviation, 0}, cut_of(stored, axis))};
  if (sizes_.biases)
    parameters.push_back(builder_.add_parameter(name + ".bias", {mine}, {0, 0}, bias_box));
  return builder_.add_node(name, make_linear(rows_, inputs, mine, sizes_.biases), {x},
                           std::move(parameters), {rows_.count(), mine});
}

int TransformerWriter::row_linear(const std::string& name, int x, std::int64_t inputs) {
  const std::int64_t hidden = sizes_.hidden;
  // Two additions into the residual a layer.
  const double spread = deviation / std::sqrt(2.0 * static_cast<double>(sizes_.layers));
  const std::int64_t mine = inputs / ranks_;
  const int weight = builder_.add_parameter(name + ".weight", {hidden, mine}, {spread, 0},
                                            cut_of({hidden, inputs}, 1));
  std::vector<int> bias;
  if (sizes_.biases) bias = {add_replicated(name + ".bias", {hidden}, {0, 0})};
  if (!cut()) {
    std::vector<int> parameters = {weight};
    parameters.insert(parameters.end(), bias.begin(), bias.end());
    return builder_.add_node(name, make_linear(rows_, inputs, hidden, sizes_.biases), {x},
                             std::move(parameters), shape());
  }
  const int part = builder_.add_node(name, make_linear(rows_, mine, hidden, /*bias=*/false), {x},
                                     {weight}, shape());
  const int sum = leave(name + "_sum", part);
  if (!sizes_.biases) return sum;
  return of_stream(builder_.add_node(name + "_bias", make_bias(stream_rows_, hidden), {sum}, bias,
                                     stream_shape()));
}

int TransformerWriter::token_rows(int tokens, int table) {
  const int part = builder_.add_node(
      "token_rows", make_token_rows(rows_, sizes_.hidden, vocabulary_), {tokens}, {table}, shape());
  return cut() ? leave("token_rows_sum", part) : part;
}

int TransformerWriter::residual(const std::string& name, int x, int branch) {
  return of_stream(
      builder_.add_node(name, make_dropout_add(name, stream_rows_, sizes_.hidden, sizes_.dropout),
                        {x, branch}, {}, stream_shape()));
}

int TransformerWriter::attention(const std::string& name, int x, const AttentionHeads& heads,
                                 std::unique_ptr<Node> node) {
  const GeneratorRows& generator = sizes_.generator;
  if (generator.kept_positions > 0) {
    node = make_kept_attention(name, rows_, heads, generator.kept_positions, std::move(node),
                               generator.decoding);
  }
  return builder_.add_node(name, std::move(node), {x}, {},
                           {rows_.count(), heads.groups * heads.members * heads.head_size});
}

void TransformerWriter::logits(int x, int table) {
  const std::int64_t width = vocabulary_.width;
  const int asked =
      builder_.add_node("asked_row", make_asked_row(sizes_.hidden, sizes_.generator.decoding), {x},
                        {}, {1, sizes_.hidden});
  const int mine = builder_.add_node("logits", make_logits_head(Rows{1, 1}, sizes_.hidden, width),
                                     {asked}, {table}, {1, width});
  if (!cut()) return;
  const int wide = builder_.add_double_node("wide_logits", make_widened(width), {mine}, {1, width});
  builder_.add_double_node("gathered_logits", make_gather_statistics(ranks_ * width, ranks_),
                           {wide}, {ranks_, width});
}

void TransformerWriter::loss(int x, int targets, int table) {
  if (!cut()) {
    builder_.add_loss("loss", make_loss_head(rows_, sizes_.hidden, sizes_.vocabulary), {x, targets},
                      {table});
    return;
  }
  const int entered = enter("loss_input", x);
  const std::int64_t width = vocabulary_.width;
  const int logits =
      builder_.add_node("logits", make_linear(rows_, sizes_.hidden, width, /*bias=*/false),
                        {entered}, {table}, {rows_.count(), width});
  const int mine =
      builder_.add_double_node("logit_statistics", make_logit_statistics(rows_, vocabulary_),
                               {logits, targets}, {2, rows_.count()});
  const int gathered = builder_.add_double_node(
      "gathered_statistics", make_gather_statistics(2 * ranks_ * rows_.count(), ranks_), {mine},
      {2 * ranks_, rows_.count()});
  builder_.add_loss("loss", make_gathered_loss(rows_, ranks_), {gathered}, {});
}

}  // namespace garonne::nn
