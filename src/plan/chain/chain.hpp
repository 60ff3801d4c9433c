// The classical chain problem: blocks in a row, each with several ways to keep what its backward
// needs. The file format is "garonne.chain" (docs/formats.md); the model of memory is its table of
// operations.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace garonne::plan {

// What one execution of a pass costs beyond the values that it makes.
struct PassCost {
  double seconds = 0;
  std::int64_t transient_bytes = 0;
};

// One way to run a block forward so that its backward can follow. `saved_bytes` contain the block's
// output value.
struct ChainOption {
  std::string name;
  std::int64_t saved_bytes = 0;
  PassCost forward;
  PassCost backward;
};

// Reads value i and makes value i+1, where i is the block's place in the chain.
struct ChainBlock {
  std::string name;
  std::int64_t output_bytes = 0;
  // Parameter gradients that the backward makes and that stay live to the end of the sequence.
  std::int64_t gradient_bytes = 0;
  PassCost forward;  // keeps nothing but its output
  std::vector<ChainOption> options;
  // Parameters, which all passes of the block read.
  std::int64_t weight_bytes = 0;
};

// Of copies to the tier below the device and back; each way is a lane of its own.
struct ChainLinks {
  double out_bytes_per_second = 0;
  double in_bytes_per_second = 0;
};

struct Chain {
  std::int64_t input_bytes = 0;
  std::vector<ChainBlock> blocks;
  std::optional<ChainLinks> links = {};  // none: nothing can be copied
};

enum class ChainOperationKind {
  ForwardDiscard,
  ForwardCheckpoint,
  ForwardKeep,
  Drop,
  Backward,
  CopyOut,
  WaitOut,
  CopyIn,
  WaitIn
};

// What is dropped or copied.
enum class ChainItem { Value, Saved, Weights };

struct ChainOperation {
  ChainOperationKind kind = ChainOperationKind::ForwardDiscard;
  int block = 0;                      // drops and copies of values: the index of the value
  int option = -1;                    // ForwardKeep only
  ChainItem item = ChainItem::Value;  // drops and copies only

  bool operator==(const ChainOperation&) const = default;
};

inline std::int64_t chain_value_bytes(const Chain& chain, int value) {
  return value == 0 ? chain.input_bytes
                    : chain.blocks[static_cast<std::size_t>(value - 1)].output_bytes;
}

inline std::int64_t chain_weight_bytes(const Chain& chain) {
  std::int64_t bytes = 0;
  for (const ChainBlock& block : chain.blocks) bytes += block.weight_bytes;
  return bytes;
}

// The same chain for whoever counts them apart.
inline Chain without_weights(Chain chain) {
  for (ChainBlock& block : chain.blocks) block.weight_bytes = 0;
  return chain;
}

}  // namespace garonne::plan
