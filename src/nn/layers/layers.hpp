// Nodes that models are built from. Shapes: rows = batch · sequence; every value is contiguous.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "kernels/cross_entropy.hpp"
#include "kernels/rotary.hpp"
#include "nn/decoding.hpp"
#include "nn/node.hpp"

namespace garonne::nn {

// The rows of a micro-batch, or a piece of them (sequence parallelism cuts the rows of all samples,
// one after the other, into equal pieces).
struct Rows {
  std::int64_t batch = 0;
  std::int64_t sequence = 0;
  std::int64_t first = 0;   // of the piece
  std::int64_t pieces = 1;  // divides batch · sequence
  std::int64_t count() const { return batch * sequence / pieces; }
};

// tokens [batch, sequence], token table [vocabulary, hidden], position table [positions, hidden]
//   -> dropout(token + position) [batch, sequence, hidden]
// `decoding`, here and below: of a generator, whose first row is at its position.
std::unique_ptr<Node> make_embedding(const std::string& name, Rows rows, std::int64_t hidden,
                                     std::int64_t vocabulary, std::int64_t positions,
                                     double dropout,
                                     std::shared_ptr<const Decoding> decoding = nullptr);

// This rank's piece of the lookup: tokens [rows], table [piece.width, hidden] -> [rows, hidden],
// zeros for tokens of other pieces. The sum over the tensor group is the lookup.
std::unique_ptr<Node> make_token_rows(Rows rows, std::int64_t hidden,
                                      kernels::VocabularyPiece piece);

// token rows [rows, hidden], position table [positions, hidden] -> dropout(x + position)
std::unique_ptr<Node> make_position_embedding(const std::string& name, Rows rows,
                                              std::int64_t hidden, std::int64_t positions,
                                              double dropout,
                                              std::shared_ptr<const Decoding> decoding = nullptr);

// x [rows, hidden], gain [hidden], bias [hidden] -> [rows, hidden]; statistics in float32 or
// better.
std::unique_ptr<Node> make_layer_norm(Rows rows, std::int64_t hidden, double epsilon);

// x [rows, inputs], weight [outputs, inputs], bias [outputs] -> [rows, outputs]
// `bias` = false: without that parameter, as where the sum over ranks is still to come.
std::unique_ptr<Node> make_linear(Rows rows, std::int64_t inputs, std::int64_t outputs,
                                  bool bias = true);

// x [rows, hidden], bias [hidden] -> x + bias
std::unique_ptr<Node> make_bias(Rows rows, std::int64_t hidden);

// Of attention's weights, after the softmax. Masks go by the node's name and by the number of the
// head among all of the model, of which a tensor rank has those from `first_head` on.
struct AttentionDropout {
  double probability = 0;
  std::string name = {};  // of the node
  std::int64_t first_head = 0;
};

// qkv [rows, 3 · heads · head size] -> causal self-attention [rows, heads · head size]
// A probability above 0 takes tiles (nn/layers/tiled_attention.hpp), outside of training, too,
// where nothing is dropped; without it they are taken where attends_in_tiles().
std::unique_ptr<Node> make_attention(Rows rows, std::int64_t heads, std::int64_t head_size,
                                     AttentionDropout dropout = {});

// x [rows, groups · (members + 2) · head size]: of each group the queries of its members, then one
// head of keys and one of values, which they share -> causal self-attention [rows, groups · members
// · head size]
std::unique_ptr<Node> make_grouped_attention(Rows rows, std::int64_t groups, std::int64_t members,
                                             std::int64_t head_size);

// x [rows, heads.width()] -> the same with the heads turned that are to be, by their positions, of
// which there are so many, at least a sample's rows
std::unique_ptr<Node> make_rotary(Rows rows, std::int64_t positions,
                                  const kernels::RotaryHeads& heads, double theta,
                                  std::shared_ptr<const Decoding> decoding = nullptr);

// x [rows, hidden], gain [hidden] -> [rows, hidden]; statistics in float32 or better.
std::unique_ptr<Node> make_rms_norm(Rows rows, std::int64_t hidden, double epsilon);

// x [rows, 2 · inner], gates first -> silu(gates) · the others [rows, inner]
std::unique_ptr<Node> make_swiglu(Rows rows, std::int64_t inner);

// residual [rows, hidden], x [rows, hidden] -> residual + dropout(x)
std::unique_ptr<Node> make_dropout_add(const std::string& name, Rows rows, std::int64_t hidden,
                                       double dropout);

// The tanh form of GELU, as in GPT-2.
std::unique_ptr<Node> make_gelu(Rows rows, std::int64_t hidden);

// x [rows, hidden], targets [rows], token table [vocabulary, hidden] -> mean cross-entropy in nats,
// a scalar in float32 or better. Keeps the gradient of the logits, made in the place of the logits.
std::unique_ptr<Node> make_loss_head(Rows rows, std::int64_t hidden, std::int64_t vocabulary);

// logits [rows, piece.width], targets [rows] -> float64 [2, rows]: logsumexp over the piece, and
// the target's logit or 0.
std::unique_ptr<Node> make_logit_statistics(Rows rows, kernels::VocabularyPiece piece);

// Statistics of all pieces, float64 [pieces, 2, rows] -> mean cross-entropy in nats, float64
// scalar.
std::unique_ptr<Node> make_gathered_loss(Rows rows, int pieces);

// x [batch, sequence, hidden], token table -> logits [batch · sequence, vocabulary]; forward only.
std::unique_ptr<Node> make_logits_head(Rows rows, std::int64_t hidden, std::int64_t vocabulary);

}  // namespace garonne::nn
