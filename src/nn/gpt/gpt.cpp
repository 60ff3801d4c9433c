#include "nn/gpt/gpt.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/collective_bytes.hpp"
#include "base/error.hpp"
#include "base/multiples.hpp"
#include "nn/collectives.hpp"
#include "nn/layers/layers.hpp"
#include "nn/model_kind.hpp"

namespace garonne::nn {
namespace {

constexpr double norm_epsilon = 1e-5;
constexpr double deviation = 0.02;  // GPT-2's

struct Tables {
  int token;
  int position;
};

// Adds the nodes of one rank's part.
class GptWriter {
 public:
  GptWriter(ModelBuilder& builder, const GptSizes& sizes, std::int64_t batch, const GptPart& part)
      : builder_(builder),
        sizes_(sizes),
        part_(part),
        ranks_(part.tensor_ranks),
        rows_{batch, sizes.sequence},
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

  // Embeddings, blocks and final norm; returns the value that the head reads.
  int body(int tokens);
  void loss(int x, int targets);
  const Tables& tables() const { return tables_; }

 private:
  bool cut() const { return ranks_ > 1; }
  TensorShape stream_shape() const { return {stream_rows_.count(), sizes_.hidden}; }
  TensorShape shape() const { return {rows_.count(), sizes_.hidden}; }
  // Of what all ranks have of the stream.
  std::int64_t elements() const { return rows_.count() * sizes_.hidden; }

  Box cut_of(const std::vector<std::int64_t>& global, std::size_t axis) const {
    return cut_box(global, axis, part_.tensor, ranks_);
  }
  // A parameter that every tensor rank has whole.
  int add_replicated(const std::string& name, std::vector<std::int64_t> shape,
                     Initialisation initialisation) {
    const int parameter = builder_.add_parameter(name, std::move(shape), initialisation);
    if (cut()) builder_.set_replicated(parameter, stream_rows_.pieces > 1);
    return parameter;
  }

  int norm(const std::string& name, int x) {
    const int gain = add_replicated(name + ".weight", {sizes_.hidden}, {0, 1});
    const int bias = add_replicated(name + ".bias", {sizes_.hidden}, {0, 0});
    return builder_.add_node(name, make_layer_norm(stream_rows_, sizes_.hidden, norm_epsilon), {x},
                             {gain, bias}, stream_shape());
  }

  // Into and out of what is cut over the tensor ranks.
  int enter(const std::string& name, int x) {
    if (!cut()) return x;
    auto node = stream_rows_.pieces > 1 ? make_gather_to_tensor(elements(), ranks_)
                                        : make_copy_to_tensor(elements(), ranks_);
    return builder_.add_node(name, std::move(node), {x}, {}, shape());
  }
  int leave(const std::string& name, int x) {
    auto node = stream_rows_.pieces > 1 ? make_scatter_from_tensor(elements(), ranks_)
                                        : make_reduce_from_tensor(elements(), ranks_);
    return builder_.add_node(name, std::move(node), {x}, {}, stream_shape());
  }

  // A linear layer whose outputs are cut, along axis `axis` of their stored shape.
  int column_linear(const std::string& name, int x, std::int64_t outputs,
                    std::vector<std::int64_t> stored, std::size_t axis) {
    const std::int64_t inputs = sizes_.hidden;
    const std::int64_t mine = outputs / ranks_;
    const Box bias_box = cut_of(stored, axis);
    stored.push_back(inputs);
    const int weight = builder_.add_parameter(name + ".weight", {mine, inputs}, {deviation, 0},
                                              cut_of(stored, axis));
    const int bias = builder_.add_parameter(name + ".bias", {mine}, {0, 0}, bias_box);
    return builder_.add_node(name, make_linear(rows_, inputs, mine), {x}, {weight, bias},
                             {rows_.count(), mine});
  }

  // One whose inputs are cut: the sum over the ranks, then the bias.
  int row_linear(const std::string& name, int x, std::int64_t inputs) {
    const std::int64_t hidden = sizes_.hidden;
    // Two additions into the residual a layer: their weights start smaller by the root of how many
    // there are.
    const double spread = deviation / std::sqrt(2.0 * static_cast<double>(sizes_.layers));
    const std::int64_t mine = inputs / ranks_;
    const int weight = builder_.add_parameter(name + ".weight", {hidden, mine}, {spread, 0},
                                              cut_of({hidden, inputs}, 1));
    const int bias = add_replicated(name + ".bias", {hidden}, {0, 0});
    if (!cut()) {
      return builder_.add_node(name, make_linear(rows_, inputs, hidden), {x}, {weight, bias},
                               shape());
    }
    const int part = builder_.add_node(name, make_linear(rows_, mine, hidden, /*bias=*/false), {x},
                                       {weight}, shape());
    const int sum = leave(name + "_sum", part);
    return builder_.add_node(name + "_bias", make_bias(stream_rows_, hidden), {sum}, {bias},
                             stream_shape());
  }

  int residual(const std::string& name, int x, int branch) {
    return builder_.add_node(name,
                             make_dropout_add(name, stream_rows_, sizes_.hidden, sizes_.dropout),
                             {x, branch}, {}, stream_shape());
  }

  int embedding(int tokens);
  int layer(std::int64_t number, int x);

  ModelBuilder& builder_;
  const GptSizes& sizes_;
  GptPart part_;
  int ranks_;
  Rows rows_;         // where heads, inner width or vocabulary are cut
  Rows stream_rows_;  // of the residual stream
  kernels::VocabularyPiece vocabulary_;
  Tables tables_{};
};

int GptWriter::embedding(int tokens) {
  const std::int64_t hidden = sizes_.hidden;
  tables_.token = builder_.add_parameter("token_embedding.weight", {vocabulary_.width, hidden},
                                         {deviation, 0}, cut_of({sizes_.vocabulary, hidden}, 0));
  tables_.position =
      add_replicated("position_embedding.weight", {sizes_.sequence, hidden}, {deviation, 0});
  if (!cut()) {
    return builder_.add_node("embedding",
                             make_embedding("embedding", rows_, hidden, sizes_.vocabulary,
                                            sizes_.sequence, sizes_.dropout),
                             {tokens}, {tables_.token, tables_.position}, shape());
  }
  const int part = builder_.add_node("token_rows", make_token_rows(rows_, hidden, vocabulary_),
                                     {tokens}, {tables_.token}, shape());
  const int rows = leave("token_rows_sum", part);
  // Named as where nothing is cut: the masks of dropout go by the name.
  return builder_.add_node(
      "embedding",
      make_position_embedding("embedding", stream_rows_, hidden, sizes_.sequence, sizes_.dropout),
      {rows}, {tables_.position}, stream_shape());
}

int GptWriter::layer(std::int64_t number, int x) {
  const std::int64_t hidden = sizes_.hidden;
  const std::int64_t head_size = hidden / sizes_.heads;
  const std::int64_t heads = sizes_.heads / ranks_;
  const std::int64_t inner = 4 * hidden / ranks_;
  const std::string prefix = fmt::format("layer.{}.", number);
  const int normed = enter(prefix + "attention_input", norm(prefix + "attention_norm", x));
  const int qkv =
      column_linear(prefix + "qkv", normed, 3 * hidden, {3, sizes_.heads, head_size}, 1);
  const int attended =
      builder_.add_node(prefix + "attention", make_attention(rows_, heads, head_size), {qkv}, {},
                        {rows_.count(), heads * head_size});
  const int projected = row_linear(prefix + "projection", attended, hidden);
  const int middle = residual(prefix + "attention_residual", x, projected);
  const int normed_again =
      enter(prefix + "feed_forward_input", norm(prefix + "feed_forward_norm", middle));
  const int up = column_linear(prefix + "up", normed_again, 4 * hidden, {4 * hidden}, 0);
  const int activated =
      builder_.add_node(prefix + "gelu", make_gelu(rows_, inner), {up}, {}, {rows_.count(), inner});
  const int down = row_linear(prefix + "down", activated, 4 * hidden);
  return residual(prefix + "feed_forward_residual", middle, down);
}

int GptWriter::body(int tokens) {
  int x = embedding(tokens);
  for (std::int64_t number = 0; number < sizes_.layers; ++number) {
    builder_.next_block();
    x = layer(number, x);
  }
  builder_.next_block();
  return norm("final_norm", x);
}

void GptWriter::loss(int x, int targets) {
  if (!cut()) {
    builder_.add_loss("loss", make_loss_head(rows_, sizes_.hidden, sizes_.vocabulary), {x, targets},
                      {tables_.token});
    return;
  }
  const int entered = enter("loss_input", x);
  const std::int64_t width = vocabulary_.width;
  const int logits =
      builder_.add_node("logits", make_linear(rows_, sizes_.hidden, width, /*bias=*/false),
                        {entered}, {tables_.token}, {rows_.count(), width});
  const int mine =
      builder_.add_double_node("logit_statistics", make_logit_statistics(rows_, vocabulary_),
                               {logits, targets}, {2, rows_.count()});
  const int gathered = builder_.add_double_node(
      "gathered_statistics", make_gather_statistics(2 * ranks_ * rows_.count(), ranks_), {mine},
      {2 * ranks_, rows_.count()});
  builder_.add_loss("loss", make_gathered_loss(rows_, ranks_), {gathered}, {});
}

}  // namespace

GptSizes gpt_sizes(const RunConfig::Model& keys, std::int64_t vocabulary) {
  if (keys.vocabulary > 0 && keys.vocabulary < vocabulary) {
    throw ConfigError("model.vocabulary", fmt::format("{}", keys.vocabulary),
                      fmt::format("is smaller than the data's vocabulary of {}", vocabulary));
  }
  return {
      keys.layers, keys.hidden, keys.heads, keys.sequence, std::max(keys.vocabulary, vocabulary),
      keys.dropout};
}

void check_gpt_sizes(const GptSizes& sizes) {
  if (sizes.hidden % sizes.heads != 0) {
    throw ConfigError("model.heads", fmt::format("{}", sizes.heads),
                      fmt::format("must divide model.hidden = {}", sizes.hidden));
  }
  if (sizes.vocabulary < 1) throw ConfigError("model.vocabulary", "", "must be at least 1");
}

void check_gpt_part(const GptSizes& sizes, std::int64_t batch, const GptPart& part) {
  const std::int64_t ranks = part.tensor_ranks;
  if (sizes.heads % ranks != 0) {
    std::int64_t below = ranks;
    while (sizes.heads % below != 0) --below;
    std::int64_t above = ranks;
    while (above < sizes.heads && sizes.heads % above != 0) ++above;
    throw ConfigError(
        "grid.tensor", fmt::format("{}", ranks),
        fmt::format("must divide model.heads = {}; the nearest that do: {}", sizes.heads,
                    ranks > sizes.heads ? fmt::format("{}", below)
                                        : fmt::format("{} and {}", below, above)));
  }
  if (part.sequence_parallel && batch * sizes.sequence % ranks != 0) {
    throw ConfigError(
        "grid.sequence_parallel", "true",
        fmt::format("wants train.micro_batch × model.sequence = {} to be a multiple of grid.tensor "
                    "= {}; of train.micro_batch {}",
                    batch * sizes.sequence, ranks,
                    nearest_multiples(batch, ranks / std::gcd(ranks, sizes.sequence))));
  }
}

Model make_gpt(const GptSizes& sizes, std::int64_t batch, const Declaration& declaration,
               const GptPart& part) {
  check_gpt_sizes(sizes);
  check_gpt_part(sizes, batch, part);
  ModelBuilder builder(declaration);
  const int tokens = builder.add_input("tokens", {batch * sizes.sequence});
  const int targets = builder.add_input("targets", {batch * sizes.sequence});
  GptWriter writer(builder, sizes, batch, part);
  writer.loss(writer.body(tokens), targets);
  Model model = builder.take();
  model.batch = batch;
  model.sequence = sizes.sequence;
  return model;
}

Model make_gpt_generator(const GptSizes& sizes, const Declaration& declaration) {
  check_gpt_sizes(sizes);
  ModelBuilder builder(declaration);
  const Rows rows{1, sizes.sequence};
  const int tokens = builder.add_input("tokens", {rows.count()});
  GptWriter writer(builder, sizes, 1, GptPart());
  const int x = writer.body(tokens);
  builder.add_node("logits", make_logits_head(rows, sizes.hidden, sizes.vocabulary), {x},
                   {writer.tables().token}, {rows.count(), sizes.vocabulary});
  Model model = builder.take();
  model.batch = 1;
  model.sequence = sizes.sequence;
  return model;
}

namespace {

Model make_on_tokens(const ModelRequest& request) {
  const RunConfig& config = request.config;
  const ModelKind& kind = model_kind(config.model.kind);
  refuse_unused_keys(config.model, kind);
  refuse_meaningless_keys(config, {"train.push_forward", "train.noise", "data.missing"});
  if (config.train.loss != "auto" && config.train.loss != kind.losses.front()) {
    throw ConfigError("train.loss", config.train.loss,
                      "is no loss of tokens; give " + kind.losses.front());
  }
  return make_gpt(gpt_sizes(config.model, request.vocabulary), config.train.micro_batch,
                  request.declaration,
                  {request.tensor, request.tensor_ranks, config.grid.sequence_parallel});
}

std::string describe_on_tokens(const ModelRequest& request) {
  const GptSizes sizes = gpt_sizes(request.config.model, request.vocabulary);
  return fmt::format("{} layers, hidden {}, {} heads, sequence {}, vocabulary {}", sizes.layers,
                     sizes.hidden, sizes.heads, sizes.sequence, sizes.vocabulary);
}

}  // namespace

ModelKind gpt_kind() {
  return {.name = "gpt",
          .keys = {"layers", "hidden", "heads", "sequence", "vocabulary", "dropout"},
          .learns_from = LearnsFrom::Tokens,
          .losses = {"cross-entropy"},
          .make = make_on_tokens,
          .describe = describe_on_tokens};
}

}  // namespace garonne::nn
