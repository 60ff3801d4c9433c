// A text that a generator goes through pass by pass: where the next pass is in it, and what
// attention keeps of the tokens before.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace garonne::nn {

// Shared by the nodes of all models that go through one text; who runs them sets it between passes.
struct Decoding {
  // Keys, then values, of all positions: [2, positions, heads of keys, head size] in the compute
  // type. A pass writes those of its rows, and reads those before them.
  struct Kept {
    std::vector<std::int64_t> shape;  // that the node wants
    at::Tensor tensor;                // brought by who runs the model
  };

  std::int64_t first = 0;            // position of the first row of the next pass
  std::int64_t asked = 0;            // its row whose logits are handed out
  std::map<std::string, Kept> kept;  // by name of the attention node
};

// The rows of a table of positions from that of the first row on.
inline at::Tensor from_first_position(const at::Tensor& table, const Decoding* decoding) {
  if (decoding == nullptr || decoding->first == 0) return table;
  return table.narrow(0, decoding->first, table.size(0) - decoding->first);
}

// How a generator goes through its text. Its models differ in nothing else.
struct GeneratorRows {
  std::int64_t count = 0;  // tokens of a pass
  // Positions that keys and values are kept of; 0 = none are. With them passes of several rows
  // begin at position 0, without them all do.
  std::int64_t kept_positions = 0;
  std::shared_ptr<Decoding> decoding;
};

}  // namespace garonne::nn
