// What the blocks of a model cost, for searches that cannot look at every node.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "plan/model/model_graph.hpp"
#include "plan/pipeline/schedule.hpp"
#include "plan/step/node_schedule.hpp"

namespace garonne::plan {

// One way to keep less of a block from its forward to its backward: nodes whose forward takes at
// most so many seconds for each byte that they would hold are run again.
struct BlockOption {
  double threshold = -1;  // seconds a byte; below 0 nothing is run again
  std::int64_t saved_bytes =
      0;  // without the value that comes into the block, which is always kept
  double again_seconds = 0;
  double again_issue_seconds = 0;  // of the host
};

// A parameter that nodes of a block use.
struct BlockParameter {
  int parameter = 0;       // of the model
  int earlier_block = -1;  // the first that uses it, where that is another one
  int node = -1;           // the first of this block that uses it and has a backward
  std::int64_t elements = 0;
  MatrixSides sides = {};
  bool matrix = false;  // of several dimensions
  bool complex = false;
  bool sums_over_tensor = false;
};

// Of one micro-batch. Seconds are those of the nodes, blocking collectives apart.
struct BlockCost {
  double forward_seconds = 0;       // keeping records or not, whichever is less
  double backward_seconds = 0;      // of the input gradients alone where nodes split them
  double weight_seconds = 0;        // where they do
  double cut_seconds = 0;           // of all nodes, as stages are dealt out by
  double forward_link_seconds = 0;  // of collectives over the tensor group
  double backward_link_seconds = 0;
  // Of the host, which issues passes: of a forward, and of a backward with its weights' where that
  // is split.
  double forward_issue_seconds = 0;
  double backward_issue_seconds = 0;
  // Of passes that meet the tensor group, what computes beside; and all that the host issues for
  // them, collectives included. Neither has seconds of its own in the nodes.
  int forward_link_kernels = 0;
  int backward_link_kernels = 0;
  int forward_link_launches = 0;
  int backward_link_launches = 0;
  std::int64_t input_bytes = 0;             // differentiable values that come into the block
  std::int64_t replicated_input_bytes = 0;  // of these, what all tensor ranks have
  bool may_begin_part = true;               // part_beginnings
  std::int64_t working_bytes = 0;           // the most that one backward needs beside what is saved
  std::vector<BlockParameter> parameters;   // each once, in the order of their nodes
  // From everything kept to nothing, each costs more seconds and saves bytes; those in between
  // that two others beat together are left out.
  std::vector<BlockOption> options;
};

// By block.
std::vector<BlockCost> block_costs(const ModelGraph& graph);

// What a device holds between forwards and backwards, at most, where a micro-batch holds
// `saved_bytes` of each chunk. An empty order is one micro-batch after the other.
std::int64_t most_on_the_way(const std::vector<PipelineOperation>& order,
                             const std::vector<std::int64_t>& saved_bytes);

// Schedules that keep less and less: every block goes from option to option, the first block first,
// since its records are held longest. A family of one index, for searches by bisection: which of
// its `options` block `block` of `blocks` then has.
std::size_t option_at_index(std::size_t index, std::size_t block, std::size_t blocks,
                            std::size_t options);

class BlockFamily {
 public:
  explicit BlockFamily(const ModelGraph& graph);

  // 0 keeps everything.
  int size() const { return size_; }
  NodeSchedule schedule(int index) const;
  // What one micro-batch holds of each chunk from its forward to its backward.
  std::vector<std::int64_t> saved_bytes(int index) const;

 private:
  std::size_t option_of(std::size_t block, int index) const;

  const ModelGraph& graph_;
  std::vector<BlockCost> blocks_;
  int size_ = 1;
};

}  // namespace garonne::plan
