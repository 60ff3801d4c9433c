// The options of a block: what to keep of it from forward to backward, with what each choice saves,
// peaks at and costs. The interface between block and chain is Rockmate's (ICML 2023): a list of
// (saved bytes, peak, seconds).
#pragma once

#include <utility>
#include <vector>

#include "plan/chain/chain.hpp"
#include "plan/stage/task_graph.hpp"

namespace garonne::plan {

struct BlockOptions {
  ChainBlock block;
  // By option, by node of the block: what becomes of its record, and of its output unless that is
  // the block's.
  std::vector<std::vector<RecordFate>> fates;
};

// Nodes [begin, end); `input` and `output` are the model's values at its ends (-1 = only loaded
// values come in). No option is worse than another in everything; option 0 keeps all.
BlockOptions make_block_options(const ModelGraph& model, const TaskGraph& tasks, int begin, int end,
                                int input, int output);

}  // namespace garonne::plan
