// A model as the planner sees it: nodes, values and parameters with bytes and seconds, no tensors.
// Every byte count here is that of an allocation, already rounded up to the tier's granularity.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/number_type.hpp"
#include "base/state_spec.hpp"
#include "plan/model/product_efficiency.hpp"

namespace garonne::plan {

// A tensor that passes between nodes of one micro-batch.
struct ValueSpec {
  std::string name;
  std::int64_t bytes = 0;
  // False for tokens and targets, and for what is made without gradients: its maker has no
  // backward.
  bool differentiable = true;
  // Comes from no node: from the data stream, or, where differentiable, from the stage before.
  bool loaded = false;
  // Of it and of its gradient.
  NumberType type = NumberType::Float32;
  std::vector<std::int64_t> shape = {};  // row-major; empty of a scalar
  // Of what comes from another stage: the chunk that receives it and sends its gradient back.
  int received_by = -1;
  bool replicated = false;  // equal on all tensor ranks, as its gradient is

  std::int64_t elements() const;
};

// A tensor of this shape as a matrix: of three and more dimensions the first so many are its rows
// that it has the fewest rows and columns together.
MatrixSides sides_of_shape(const std::vector<std::int64_t>& shape);

struct ParameterSpec {
  std::string name;
  std::vector<std::int64_t> shape;
  std::int64_t elements = 0;
  bool decays = false;                      // matrices, embeddings included, take weight decay
  std::optional<double> weight_decay = {};  // of its own, in place of that of the run
  // Pairs of neighbouring elements are complex numbers. What cuts a parameter keeps them together.
  bool complex = false;
  // Another stage has a copy (tied embeddings, two directions): gradients are summed over them, and
  // only the copy on the first stage is counted in norms.
  bool tied = false;
  bool counted = true;
  bool replicated = false;  // equal on all tensor ranks
  // Each tensor rank has a part of its gradient only: the step sums them over the tensor group.
  bool sums_over_tensor = false;
  // Of the stored whole; none: of what is here.
  MatrixSides stored_sides = {};

  MatrixSides sides() const;
};

// What one execution of an operation costs.
struct OperationCost {
  double seconds = 0;        // of the device
  double issue_seconds = 0;  // of the host, to put it there; 0 where the host computes
  std::int64_t transient_bytes = 0;
  double floating_point_operations = 0;
  ProductSize product = {};  // whose operations most of them are
  int kernels = 1;           // that a GPU is given for it
};

// What the tensor group does in the middle of a pass of a node; nothing where `kind` is empty. The
// pass is divided there (plan/step/divide_passes.hpp).
struct NodeCollective {
  std::string kind;        // "all-reduce", "all-gather", "reduce-scatter"
  std::int64_t bytes = 0;  // of the whole range that the ranks exchange
  // Of what the pass makes for that range; 0 = the range is the storage of what the pass makes.
  std::int64_t buffer_bytes = 0;
  std::int64_t staging_bytes = 0;
  // Of a sum that travels in less than what gradients are summed in; none = in that, or as it is.
  std::optional<NumberType> wire = {};
};

// One way to keep what a node's backward needs: what a forward makes for it besides the output,
// what stays pinned until then, and what the passes cost that way.
struct KeepOption {
  // The ways of one node are told apart by it; buffers of private slots are called by it, too.
  std::string name = "record";
  // The backward computes the same to the bit as with every other exact way. What it takes from a
  // way that is not exact is approximate (Fate::Approximate).
  bool exact = true;
  std::vector<int> pinned_values;  // values that the backward reads (inputs or the output)
  // Per input, or empty, and for the output: the backward reads it. pinned_values has the same as
  // indices.
  std::vector<bool> pins_inputs;
  bool pins_output = false;
  std::vector<std::int64_t> private_slot_bytes;  // kept from a recorded forward to the backward
  OperationCost forward_keep;                    // makes output and private slots
  OperationCost backward;         // input gradients, and weight gradients unless they are split off
  OperationCost backward_weight;  // where they are
  // Of a backward that adds to a gradient in place or writes over the output's, where that is not
  // what `backward` takes: what it makes otherwise is no part of the peak then.
  std::optional<std::int64_t> in_place_transient_bytes;

  bool has_record() const { return !private_slot_bytes.empty(); }
};

// What a node says of its record itself is the first of its ways to be kept.
struct NodeSpec : KeepOption {
  std::string name;      // global, as "layer.3.attention"
  std::string kind;      // as "attention"
  std::string cost_key;  // nodes with equal keys cost the same and are measured once
  int block = 0;
  int chunk = 0;                // of the stage, where a pipeline gives it several
  std::vector<int> inputs;      // value indices, in the node's order
  int output = -1;              // value index
  std::vector<int> parameters;  // parameter indices, in the node's order
  // Per input. Its gradient is the storage of the output's gradient.
  std::vector<bool> gradient_aliases;
  // Per input, or empty. The backward can add to an existing gradient of this input in place.
  std::vector<bool> adds_in_place;
  // Per input, or empty. The backward can write this input's gradient over the output's, of the
  // same bytes, where nothing else is named by that storage.
  std::vector<bool> overwrites_gradient;
  // Weight gradients first, from the pinned values; then input gradients, from parameters only. Two
  // instructions, so that pinned values are gone before the input gradients come.
  bool splits_backward = false;
  // Among the last of its chunk: its forward sends its input to the stage after, its backward
  // receives the gradient. Its output has no bytes and no gradient.
  bool hands_over = false;
  OperationCost forward;                    // keeps nothing but its output
  std::vector<KeepOption> further_options;  // other ways to be kept, none where it has but one
  // A node with one of them has one input, and neither parameters nor a record: what computes
  // beside is a node of its own. The transient bytes of the pass cover all that it is divided into.
  NodeCollective forward_collective;
  NodeCollective backward_collective;
  bool communicates() const {
    return !forward_collective.kind.empty() || !backward_collective.kind.empty();
  }
  bool measured = false;  // seconds from a profile of this machine, else zero
  // Numbers that software without its kernel would have in memory between the operations that it
  // is of: scores of attention.
  std::int64_t scores = 0;

  // The ways to be kept, from 0 on; throws std::out_of_range for a number beyond.
  int keep_options() const { return 1 + static_cast<int>(further_options.size()); }
  const KeepOption& keep_option(int number) const {
    return number == 0 ? *this : further_options.at(static_cast<std::size_t>(number) - 1);
  }
  KeepOption& keep_option(int number) {
    return number == 0 ? *this : further_options.at(static_cast<std::size_t>(number) - 1);
  }
};

// Nodes in a topological order; blocks are runs of nodes, numbered from 0, ascending along the
// list.
struct ModelGraph {
  std::vector<ValueSpec> values;
  std::vector<ParameterSpec> parameters;
  std::vector<NodeSpec> nodes;
  int loss = -1;  // value index of the scalar loss; -1 in a graph without one

  // The backward starts here: nobody brings a gradient of the node's output.
  bool starts_backward(const NodeSpec& node) const {
    return node.output == loss || node.hands_over;
  }
  bool has_backward(const NodeSpec& node) const {
    return starts_backward(node) || values[static_cast<std::size_t>(node.output)].differentiable;
  }
  int chunks() const { return nodes.empty() ? 1 : nodes.back().chunk + 1; }

  int blocks() const { return nodes.empty() ? 0 : nodes.back().block + 1; }
  std::int64_t parameter_elements() const;
};

// Throws InternalError when indices, orders or sizes contradict each other.
void check_model_graph(const ModelGraph& graph);

}  // namespace garonne::plan
