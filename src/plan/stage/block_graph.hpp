// A block by itself as tasks, for the solvers of graphs. For the options of blocks.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/stage/task_graph.hpp"

namespace garonne::plan {

class BlockGraph {
 public:
  // Nodes [begin, end). By value of `tasks`: `counted` is what the block keeps bytes for, what is
  // `wanted_at_end` of that outlives the block.
  BlockGraph(const TaskGraph& tasks, int begin, int end, const std::vector<bool>& counted,
             const std::vector<bool>& wanted_at_end);

  // By node of the block: whether it runs forward only once in the fastest schedule found that
  // keeps at most so many bytes of the block from forward to backward; the leanest found where none
  // does. `rounds` bounds the search. Ways to be kept are the first ones.
  std::vector<bool> kept_within(std::int64_t bytes, std::int64_t rounds) const;

 private:
  ComputationGraph graph_;
  std::vector<int> forward_of_task_;  // node of the block, or -1
  int nodes_ = 0;
  // Of a task between forwards and backwards, more than everything else together: a budget beyond
  // it bounds what is live then, and nothing else.
  std::int64_t ballast_bytes_ = 0;
};

}  // namespace garonne::plan
