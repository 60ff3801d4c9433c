// The classical chain problem: blocks in a row, each with several ways to keep what its backward
// needs. The file format is "garonne.chain" (docs/formats.md); the model of memory is its table of
// operations.
#pragma once

#include <cstdint>
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
};

struct Chain {
  std::int64_t input_bytes = 0;
  std::vector<ChainBlock> blocks;
};

enum class ChainOperationKind { ForwardDiscard, ForwardCheckpoint, ForwardKeep, Drop, Backward };

struct ChainOperation {
  ChainOperationKind kind = ChainOperationKind::ForwardDiscard;
  int block = 0;    // Drop: the index of the value
  int option = -1;  // ForwardKeep only
};

}  // namespace garonne::plan
