// A stage as a chain of blocks with options, for the solvers of chains: blocks are the runs of
// nodes between values that everything passes through (the "separators" of Rockmate, ICML 2023),
// options the ways to keep something inside a block and to make the rest again.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "plan/chain/chain.hpp"
#include "plan/stage/task_graph.hpp"
#include "plan/stage/text_cache.hpp"

namespace garonne::plan {

struct StageChain {
  Chain chain;
  std::vector<std::pair<int, int>> nodes;  // [begin, end) of each block
  std::vector<int> value;                  // model value i of the chain; value 0 is -1, the input
  // By block, option and node of the block: BlockOptions::fates.
  std::vector<std::vector<std::vector<RecordFate>>> fates;
  // Inputs that are loaded with the first one and stay.
  std::int64_t resident_bytes = 0;
};

// None where no value separates the nodes (skip connections over everything).
std::optional<StageChain> make_stage_chain(const ModelGraph& model, const TaskGraph& tasks,
                                           TextCache* cache = nullptr);

// What a chain schedule means for the nodes.
NodeSchedule expand(const ModelGraph& model, const StageChain& stage,
                    const std::vector<ChainOperation>& operations);

}  // namespace garonne::plan
