// The order in which one micro-batch runs its nodes, forward and backward, some forwards several
// times. Everything else about memory follows: a value lives from the forward that makes it to its
// last reader before it is made again.
#pragma once

#include <utility>
#include <vector>

#include "plan/model/model_graph.hpp"
#include "plan/step/fate.hpp"

namespace garonne::plan {

// A backward is one pass, or two where the node splits it.
enum class Pass { Forward, Backward, BackwardWeight, BackwardInput };

struct NodeStep {
  static constexpr int no_record = -1;

  int node = 0;
  Pass pass = Pass::Forward;
  int option = no_record;  // this forward makes the record, in this of the node's ways

  bool forward() const { return pass == Pass::Forward; }
  bool keeps() const { return option != no_record; }
  bool operator==(const NodeStep&) const = default;
};
// The passes of a node's backward, in their order; none where it has no backward.
std::vector<Pass> backward_passes(const ModelGraph& graph, int node);
using NodeSchedule = std::vector<NodeStep>;

// The schedules of all micro-batches of a step: schedules[of_micro_batch[m]] is that of m.
struct StepSchedule {
  std::vector<NodeSchedule> schedules;
  std::vector<int> of_micro_batch;
};
StepSchedule same_for_all(NodeSchedule schedule, int micro_batches);

// Appends steps to a schedule and knows which values and records are there for later backwards.
class ScheduleWriter {
 public:
  explicit ScheduleWriter(const ModelGraph& graph);

  // Runs a node forward; its value and record are there afterwards. One that hands over runs the
  // first time only: what the next stage has is no more use here.
  void forward(int node);
  // Says that a value is there without a forward of this schedule.
  void assume_value(int value) { value_there_[static_cast<std::size_t>(value)] = true; }
  // Says that a value will not survive to the backwards that follow.
  void forget_value(int value) { value_there_[static_cast<std::size_t>(value)] = false; }
  // Says what becomes of a value or record that is there now, and in which way the record is made
  // from now on, and was; until this says another it is the first. Loaded values stay. Throws
  // InternalError for a fate that it cannot place (is_kept).
  void decide_value(int value, Fate fate);
  void decide_record(int node, RecordFate fate);
  void decide(const Fates& fates);
  // Runs a node backward, after the forwards that make what it needs and is not there; nothing
  // where it has no backward.
  void backward(int node);

  // The schedule so far, with each node's last forward before its backward marked as keeping.
  NodeSchedule take();

 private:
  void make_value(int value);
  void make_record(int node);

  const ModelGraph& graph_;
  std::vector<int> maker_;  // by value; -1 = loaded
  std::vector<bool> value_there_;
  std::vector<bool> record_there_;
  std::vector<int> option_;        // by node: the way in which its record is made
  std::vector<bool> handed_over_;  // by node
  NodeSchedule schedule_;
};

// Marks in each node the last forward before its backward as the one that keeps the record, in the
// way of `options`, by node.
void mark_kept_records(const std::vector<int>& options, NodeSchedule& schedule);

// All forwards, then all backwards in reverse order; what is not kept is made again right before
// it is needed, and stays to its last use. Throws InternalError for a fate that no schedule can
// place (is_kept).
NodeSchedule recompute_on_demand(const ModelGraph& graph, const Fates& fates);

// Which blocks drop everything but the values that leave them.
using RecomputeChoice = std::vector<bool>;
NodeSchedule recompute_blocks(const ModelGraph& graph, const RecomputeChoice& recompute);

// Values that nodes of another block than their maker's read; loaded ones are none.
std::vector<int> values_that_leave_blocks(const ModelGraph& graph);

// Nodes [begin, end) of each block.
std::vector<std::pair<int, int>> block_ranges(const ModelGraph& graph);

}  // namespace garonne::plan
