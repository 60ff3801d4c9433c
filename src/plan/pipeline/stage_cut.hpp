// Cuts a model into the parts of a pipeline: the graph of one stage, with what it receives and
// hands over.
#pragma once

#include <vector>

#include "plan/model/model_graph.hpp"

namespace garonne::plan {

// Nodes [first, last) of the whole model.
struct NodeRange {
  int first = 0;
  int last = 0;

  bool operator==(const NodeRange&) const = default;
};

// One stage: its chunks one after the other. Every differentiable value that crosses a cut between
// stages is handed over, in the order of the model's values; one that skips a part is received
// there and handed on.
struct StageCut {
  ModelGraph graph;
  // By index in the stage: the index in the whole model. -1 for nodes that hand over, and for their
  // outputs.
  std::vector<int> nodes;
  std::vector<int> values;
  std::vector<int> parameters;
};

// One chunk of a stage.
struct StagePart {
  int part = 0;           // of the model
  bool receives = false;  // what crosses its beginning comes from another stage
  bool hands_over = false;
};

// `parts` cuts the whole model, `chunks` names the stage's own among them. Chunks that neither
// receive nor hand over to one another have nothing in common but what is loaded, and parameters.
// Throws ConfigError (grid.pipeline) where what a node makes without a gradient crosses a cut.
StageCut cut_stage(const ModelGraph& whole, const std::vector<NodeRange>& parts,
                   const std::vector<StagePart>& chunks);

// By block: whether a part may begin there. No value crosses that has no gradient to send back, and
// every parameter that is used before is used there by a node that has a backward.
std::vector<bool> part_beginnings(const ModelGraph& whole);

// What balanced_parts deals out of a block: forward and backward seconds. Whoever asks for the same
// cut has these, to the last bit, since blocks that take equally long are ranked by their rounding.
double balanced_seconds(const ModelGraph& whole, const NodeRange& nodes);

// `parts` runs of whole blocks whose slowest is as fast as can be (forward and backward seconds,
// of equals the one with the smaller sum of squares), each from one of part_beginnings; exact, by
// two dynamic programs. Throws ConfigError (grid.pipeline) where there are fewer of those.
std::vector<NodeRange> balanced_parts(const ModelGraph& whole, int parts);
// The same for blocks of which only that and the seconds are known: the first block of each part,
// and one past the last block.
std::vector<int> balanced_blocks(const std::vector<double>& seconds,
                                 const std::vector<bool>& may_begin, int parts);

}  // namespace garonne::plan
