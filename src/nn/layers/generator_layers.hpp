// Nodes that only generators of text have; they run forward only.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "nn/decoding.hpp"
#include "nn/layers/layers.hpp"

namespace garonne::nn {

// How heads stand in a row of the input of attention.
struct AttentionHeads {
  std::int64_t groups = 0;   // that share one head of keys and one of values
  std::int64_t members = 0;  // heads of queries in a group
  std::int64_t head_size = 0;
  // Queries of all groups, then all keys, then all values; else group after group.
  bool parts_first = false;

  std::int64_t width() const { return groups * (members + 2) * head_size; }
};

// What `attention`, of `rows` of one sample, gives for a pass, from keys and values that
// decoding.kept[name] has of `positions`. Several rows are `attention` itself; a single one is
// compared with all positions up to its own. Processors only.
std::unique_ptr<Node> make_kept_attention(const std::string& name, Rows rows,
                                          const AttentionHeads& heads, std::int64_t positions,
                                          std::unique_ptr<Node> attention,
                                          std::shared_ptr<Decoding> decoding);

// x [rows, hidden] -> row decoding.asked of it [1, hidden]
std::unique_ptr<Node> make_asked_row(std::int64_t hidden, std::shared_ptr<const Decoding> decoding);

// x [elements] of the compute type -> the same in float64
std::unique_ptr<Node> make_widened(std::int64_t elements);

}  // namespace garonne::nn
