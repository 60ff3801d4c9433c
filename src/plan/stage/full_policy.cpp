#include <algorithm>

#include "plan/stage/policy.hpp"

namespace garonne::plan {
namespace {

// By chunk: whether each micro-batch's backward is the next operation after its forward here.
// Without an order micro-batches come one after the other, forward through all chunks and back.
std::vector<bool> chunks_that_turn_back(int chunks, std::vector<PipelineOperation> order) {
  std::erase_if(order, [](const auto& one) { return one.work == PipelineWork::Recompute; });
  std::vector<bool> turns(static_cast<std::size_t>(chunks), !order.empty());
  turns.back() = true;
  for (std::size_t k = 0; k < order.size(); ++k) {
    if (order[k].work != PipelineWork::Forward) continue;
    const bool at_once = k + 1 < order.size() && gives_input_gradient(order[k + 1].work) &&
                         order[k + 1].chunk == order[k].chunk &&
                         order[k + 1].micro_batch == order[k].micro_batch;
    if (!at_once) turns[static_cast<std::size_t>(order[k].chunk)] = false;
  }
  return turns;
}

// Dropping the records of a block whose backward follows its forward at once saves nothing: that
// is the last one of a chunk that turns back.
std::vector<NodeSchedule> all_but_where_it_turns(const ModelGraph& graph,
                                                 const std::vector<PipelineOperation>& order) {
  const std::vector<bool> turns = chunks_that_turn_back(graph.chunks(), order);
  RecomputeChoice choice(static_cast<std::size_t>(graph.blocks()), true);
  std::vector<int> last_block(turns.size(), -1);
  for (const NodeSpec& node : graph.nodes)
    last_block[static_cast<std::size_t>(node.chunk)] = node.block;
  for (std::size_t chunk = 0; chunk < turns.size(); ++chunk) {
    if (turns[chunk] && last_block[chunk] >= 0)
      choice[static_cast<std::size_t>(last_block[chunk])] = false;
  }
  return {recompute_blocks(graph, choice)};
}

}  // namespace

StageSolver full_policy() {
  StageSolver policy = make_policy(
      "full",
      "keep block inputs only and run each block again, but one whose backward follows at once",
      [](const ModelGraph& graph) { return all_but_where_it_turns(graph, {}); });
  policy.leanest = [](const StageProblem& problem) {
    return all_but_where_it_turns(problem.model, problem.order);
  };
  policy.solve = [](const StageProblem& problem, std::int64_t, const NodeSchedule&) {
    return all_but_where_it_turns(problem.model, problem.order);
  };
  return policy;
}

}  // namespace garonne::plan
