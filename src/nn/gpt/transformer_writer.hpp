// What decoder-only transformers share: the nodes of one tensor rank's part, with what is cut over
// the tensor ranks and what travels between them. Private to this folder.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cross_entropy.hpp"
#include "nn/decoding.hpp"
#include "nn/gpt/transformer_part.hpp"
#include "nn/layers/generator_layers.hpp"
#include "nn/layers/layers.hpp"
#include "nn/model.hpp"

namespace garonne::nn {

// Throws ConfigError (grid.tensor) where `ranks` do not divide the `count` of key `key`.
void check_tensor_divides(const std::string& key, std::int64_t count, std::int64_t ranks);
// Throws ConfigError (grid.sequence_parallel) for a cut that the sizes do not allow.
void check_sequence_cut(std::int64_t batch, std::int64_t sequence, const TransformerPart& part);

struct TransformerSizes {
  std::int64_t layers = 0;
  std::int64_t hidden = 0;
  std::int64_t sequence = 0;  // also the number of positions
  std::int64_t vocabulary = 0;
  bool biases = true;            // of linear layers
  double dropout = 0;            // of what is added to the residual stream
  GeneratorRows generator = {};  // of a generator; else samples go through as a whole
};

class TransformerWriter {
 public:
  TransformerWriter(ModelBuilder& builder, const TransformerSizes& sizes, std::int64_t batch,
                    const TransformerPart& part);

 protected:
  static constexpr double deviation = 0.02;  // GPT-2's, of weights at the start

  bool cut() const { return ranks_ > 1; }
  TensorShape stream_shape() const { return {stream_rows_.count(), sizes_.hidden}; }
  TensorShape shape() const { return {rows_.count(), sizes_.hidden}; }
  // Of what all ranks have of the stream.
  std::int64_t elements() const { return rows_.count() * sizes_.hidden; }
  Box cut_of(const std::vector<std::int64_t>& global, std::size_t axis) const;

  // A parameter that every tensor rank has whole.
  int add_replicated(const std::string& name, std::vector<std::int64_t> shape,
                     Initialisation initialisation);
  // `value`, of the residual stream or added to it: where the stream is not cut, all tensor ranks
  // have the same.
  int of_stream(int value);
  // The table [vocabulary, hidden], cut by its rows.
  int add_vocabulary_table(const std::string& name);

  // Into and out of what is cut over the tensor ranks.
  int enter(const std::string& name, int x);
  int leave(const std::string& name, int x);

  // A linear layer whose outputs are cut, along axis `axis` of their stored shape.
  int column_linear(const std::string& name, int x, std::int64_t outputs,
                    std::vector<std::int64_t> stored, std::size_t axis);
  // One whose inputs are cut: the sum over the ranks, then the bias. Its weights start smaller by
  // the root of how many there are, since all of them add to the residual stream.
  int row_linear(const std::string& name, int x, std::int64_t inputs);
  // The rows of the table [vocabulary, hidden] that the tokens name.
  int token_rows(int tokens, int table);
  int residual(const std::string& name, int x, int branch);
  // Attention to what is before the pass, too, where a generator keeps that.
  int attention(const std::string& name, int x, const AttentionHeads& heads,
                std::unique_ptr<Node> node);
  // Mean cross-entropy of the products of x with the rows of the table.
  void loss(int x, int targets, int table);
  // Of a generator: those products of the row that is asked for, on every tensor rank; of the
  // compute type [1, vocabulary], or where the table is cut float64 [ranks, rows of a piece].
  void logits(int x, int table);

  ModelBuilder& builder_;
  TransformerSizes sizes_;
  TransformerPart part_;
  int ranks_;
  Rows rows_;         // where heads, inner width or vocabulary are cut
  Rows stream_rows_;  // of the residual stream
  kernels::VocabularyPiece vocabulary_;
};

}  // namespace garonne::nn
