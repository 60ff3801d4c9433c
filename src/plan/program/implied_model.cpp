#include "plan/program/implied_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/index.hpp"
#include "plan/program/replay.hpp"

namespace garonne::plan {
namespace {

class ImpliedModel {
 public:
  explicit ImpliedModel(const Program& program)
      : program_(program), held_(program.buffers.size()), bucket_in_(program.buffers.size(), -1) {}

  ModelGraph take() {
    size_tables();
    add_parameters();
    for (number_ = 0; as_index(number_) < program_.instructions.size(); ++number_) {
      instruction_ = &program_.instructions[as_index(number_)];
      step();
      for (const int freed : instruction_->frees) held_[as_index(freed)] = Held();
    }
    number_chunks();
    return std::move(graph_);
  }

 private:
  // A value of a micro-batch.
  struct Held {
    int value = -1;
    int micro_batch = -1;
  };

  void says(bool holds, const std::string& reason) const {
    if (holds) return;
    throw ReplayError(
        number_, instruction_ == nullptr ? "what is trained" : describe(*instruction_), reason);
  }

  // Numbers that the Program has stay; what nodes make is numbered behind them.
  void size_tables() {
    int values = 0;
    int nodes = 0;
    const auto most = static_cast<int>(program_.buffers.size() + program_.instructions.size());
    for (number_ = 0; as_index(number_) < program_.instructions.size(); ++number_) {
      instruction_ = &program_.instructions[as_index(number_)];
      const Arguments& arguments = instruction_->arguments;
      for (const LoadedValue& loaded : arguments.loaded) values = std::max(values, loaded.value);
      values = std::max(values, arguments.value);
      // Every value is made somewhere, so larger ones are numbers of no model.
      says(values < most && instruction_->node_index < most,
           "has a number of a value or node that nothing makes");
      if (is_of_node()) nodes = std::max(nodes, instruction_->node_index + 1);
    }
    instruction_ = nullptr;
    number_ = -1;
    first_made_ = values + 1;
    graph_.values.resize(as_index(first_made_ + nodes));
    for (ValueSpec& value : graph_.values) value.differentiable = false;
    graph_.nodes.resize(as_index(nodes));
    for (int n = 0; n < nodes; ++n) graph_.nodes[as_index(n)].output = first_made_ + n;
    seen_.resize(as_index(nodes), false);
  }

  bool is_of_node() const {
    const Operation operation = instruction_->operation;
    return is_forward(operation) || is_backward(operation) || is_message(operation) ||
           instruction_->arguments.exchanged >= 0;
  }

  void add_parameters() {
    std::size_t count = 0;
    for (const Bucket& bucket : program_.buckets) count += bucket.parameters.size();
    graph_.parameters.resize(count);
    for (std::size_t b = 0; b < program_.buckets.size(); ++b) {
      const Bucket& bucket = program_.buckets[b];
      says(bucket.offsets.size() == bucket.parameters.size(), "a bucket lacks offsets");
      for (std::size_t k = 0; k < bucket.parameters.size(); ++k) {
        const int p = bucket.parameters[k];
        says(p >= 0 && as_index(p) < count, "a bucket is of no parameter");
        const std::int64_t next =
            k + 1 < bucket.offsets.size() ? bucket.offsets[k + 1] : bucket.elements;
        graph_.parameters[as_index(p)].elements = next - bucket.offsets[k];
        graph_.parameters[as_index(p)].name = fmt::format("parameter {}", p);
      }
      if (bucket.shard.elements > 0 && bucket.shard.gathered < 0) {
        says(bucket.shard.parameter >= 0 && as_index(bucket.shard.parameter) < bucket_in_.size(),
             "a shard has no buffer");
        bucket_in_[as_index(bucket.shard.parameter)] = static_cast<int>(b);
      }
    }
    for (const Piece& piece : program_.pieces) {
      const Range& range = piece.compute_copy.buffer >= 0 ? piece.compute_copy : piece.trained;
      says(range.buffer >= 0 && as_index(range.buffer) < bucket_in_.size(),
           "a piece has no buffer");
      if (bucket_in_[as_index(range.buffer)] < 0) whole_.emplace(range.buffer, piece.parameter);
    }
    for (const auto& [buffer, p] : whole_) {
      says(as_index(p) < count || program_.buckets.empty(), "a piece is of no parameter");
      if (as_index(p) < count)
        graph_.parameters[as_index(p)].name = program_.buffers[as_index(buffer)].name;
    }
  }

  void step() {
    const Arguments& arguments = instruction_->arguments;
    const int n = instruction_->node_index;
    if (is_of_node() && !is_message(instruction_->operation)) says(n >= 0, "is of no node");
    switch (instruction_->operation) {
      case Operation::Load:
        for (const LoadedValue& loaded : arguments.loaded) comes(loaded.value, loaded.buffer);
        break;
      case Operation::Receive:
        if (n >= 0) break;
        says(arguments.value >= 0, "receives no value");
        comes(arguments.value, arguments.output);
        goes_in_parts(arguments.value);
        break;
      case Operation::Send:
        if (n >= 0) {
          hand_over(graph_.nodes[as_index(n)]);
          goes_in_parts(graph_.nodes[as_index(n)].inputs[0]);
        }
        break;
      case Operation::Forward:
      case Operation::ForwardKeep:
        if (arguments.exchanged >= 0) {
          begin_forward(graph_.nodes[as_index(n)]);
        } else {
          forward(graph_.nodes[as_index(n)]);
        }
        break;
      case Operation::Backward:
      case Operation::BackwardWeight:
      case Operation::BackwardInput:
        if (arguments.exchanged >= 0) {
          graph_.values[as_index(graph_.nodes[as_index(n)].output)].differentiable = true;
          exchanged_[arguments.exchanged] = false;
        } else {
          backward(graph_.nodes[as_index(n)]);
        }
        break;
      case Operation::FinishForward:
        is_first(graph_.nodes[as_index(n)]);
        break;
      case Operation::FinishBackward:
        finish_backward(graph_.nodes[as_index(n)]);
        break;
      case Operation::ReduceScatter:
        if (arguments.exchanged >= 0) exchange(graph_.nodes[as_index(n)]);
        break;
      case Operation::AllGather:
        if (arguments.exchanged >= 0) {
          exchange(graph_.nodes[as_index(n)]);
        } else if (gathers_parameters(*instruction_)) {
          gather();
        }
        break;
      case Operation::AllReduce:
        if (arguments.exchanged >= 0) {
          exchange(graph_.nodes[as_index(n)]);
        } else if (instruction_->channel) {
          sum_over(instruction_->channel->group);
        }
        break;
      case Operation::CopyOut:
      case Operation::CopyIn:
      case Operation::DiskWrite:
      case Operation::DiskRead:
        copy();
        break;
      case Operation::EmitLoss:
        says(!arguments.inputs.empty(), "takes one input");
        if (graph_.loss < 0) graph_.loss = value_in(arguments.inputs[0]);
        break;
      default:
        break;
    }
  }

  // From no node.
  void comes(int value, int buffer) {
    says(value >= 0 && value < first_made_, "is of no value");
    says(buffer >= 0, "makes nothing");
    ValueSpec& spec = graph_.values[as_index(value)];
    spec.loaded = true;
    name_and_size(spec, buffer);
    held_[as_index(buffer)] = {value, instruction_->micro_batch};
  }

  // Of a message: what the parts are of is the same on all tensor ranks.
  void goes_in_parts(int value) {
    if (!is_part_of_message(*instruction_)) return;
    ValueSpec& spec = graph_.values[as_index(value)];
    spec.replicated = true;
    spec.shape = {program_.buffers[as_index(instruction_->arguments.part.buffer)].elements};
  }

  void name_and_size(ValueSpec& spec, int buffer) const {
    const Buffer& made = program_.buffers[as_index(buffer)];
    if (!spec.name.empty()) return;
    spec.name = made.name.substr(0, made.name.rfind('#'));
    spec.bytes = made.bytes;
  }

  int value_in(int buffer) const {
    const Held& held = held_[as_index(buffer)];
    says(held.value >= 0 && held.micro_batch == instruction_->micro_batch,
         fmt::format("{} is no value of micro-batch {}", program_.buffers[as_index(buffer)].name,
                     instruction_->micro_batch));
    return held.value;
  }

  // Whether it is seen for the first time; what it makes is there from now on.
  bool is_first(NodeSpec& node) {
    const int output = instruction_->arguments.output;
    says(output >= 0, "makes nothing");
    held_[as_index(output)] = {node.output, instruction_->micro_batch};
    name_and_size(graph_.values[as_index(node.output)], output);
    const bool first = !seen_[as_index(instruction_->node_index)];
    seen_[as_index(instruction_->node_index)] = true;
    if (first) node.name = instruction_->node;
    return first;
  }

  // Nodes that take one another's values within the stage are of one chunk: between chunks there
  // are messages. A chunk whose nodes do not hang together is taken for several.
  void number_chunks() {
    std::vector<int> leader(graph_.nodes.size());
    std::iota(leader.begin(), leader.end(), 0);
    const auto leader_of = [&](int node) {
      while (leader[as_index(node)] != node) node = leader[as_index(node)];
      return node;
    };
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n) {
      for (const int input : graph_.nodes[n].inputs) {
        if (input < first_made_) continue;
        const int one = leader_of(static_cast<int>(n));
        const int other = leader_of(input - first_made_);
        leader[as_index(std::max(one, other))] = std::min(one, other);
      }
    }
    std::map<int, int> chunk_of;  // by leader
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n) {
      graph_.nodes[n].chunk =
          chunk_of.try_emplace(leader_of(static_cast<int>(n)), static_cast<int>(chunk_of.size()))
              .first->second;
    }
  }

  void hand_over(NodeSpec& node) {
    says(instruction_->arguments.inputs.size() == 1, "takes one input");
    const int input = value_in(instruction_->arguments.inputs[0]);
    if (!is_first(node)) return;
    node.inputs = {input};
    node.hands_over = true;
  }

  void forward(NodeSpec& node) {
    const Arguments& arguments = instruction_->arguments;
    std::vector<int> inputs;
    for (const int id : arguments.inputs) inputs.push_back(value_in(id));
    std::vector<int> parameters;
    for (const Range& range : arguments.parameters) parameters.push_back(parameter_at(range));
    if (instruction_->operation == Operation::ForwardKeep) {
      std::vector<std::int64_t>& slots = keep_option(node).private_slot_bytes;
      const bool known = !slots.empty();
      for (const int id : arguments.record) {
        if (!known) slots.push_back(program_.buffers[as_index(id)].bytes);
      }
    }
    if (!is_first(node)) return;
    node.inputs = std::move(inputs);
    node.parameters = std::move(parameters);
  }

  // Of a pass that is divided.
  void begin_forward(NodeSpec& node) {
    const Arguments& arguments = instruction_->arguments;
    says(arguments.inputs.size() == 1, "takes another number of inputs");
    const int input = value_in(arguments.inputs[0]);
    exchanged_[arguments.exchanged] = true;
    if (!node.inputs.empty()) return;
    node.name = instruction_->node;
    node.inputs = {input};
  }

  // The first collective of a pass says what it is.
  void exchange(NodeSpec& node) {
    const auto found = exchanged_.find(instruction_->arguments.exchanged);
    NodeCollective& collective = found != exchanged_.end() && found->second
                                     ? node.forward_collective
                                     : node.backward_collective;
    if (!collective.kind.empty()) return;
    collective.kind = to_string(instruction_->operation);
    if (instruction_->channel) collective.wire = instruction_->channel->wire;
  }

  void finish_backward(NodeSpec& node) {
    says(seen_[as_index(instruction_->node_index)] && node.inputs.size() == 1,
         "runs before its forward");
    says(instruction_->arguments.input_gradients.size() == 1, "makes another number of gradients");
    graph_.values[as_index(node.inputs[0])].differentiable = true;
    backwards_.insert({instruction_->node_index, 0, Operation::Backward});
  }

  void backward(NodeSpec& node) {
    const Arguments& arguments = instruction_->arguments;
    says(seen_[as_index(instruction_->node_index)], "runs before its forward");
    says(arguments.inputs.size() == node.inputs.size(), "takes another number of inputs");
    graph_.values[as_index(node.output)].differentiable = true;
    for (const GradientTarget& target : arguments.parameter_gradients)
      made_in_[target.range.buffer].insert(target.parameter);
    if (!backwards_
             .insert({instruction_->node_index, arguments.keep_option, instruction_->operation})
             .second)
      return;
    KeepOption& kept = keep_option(node);
    if (instruction_->operation != Operation::Backward) node.splits_backward = true;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      if (arguments.input_gradients[i] >= 0)
        graph_.values[as_index(node.inputs[i])].differentiable = true;
      if (arguments.inputs[i] >= 0) kept.pinned_values.push_back(node.inputs[i]);
    }
    if (arguments.pinned_output >= 0) kept.pinned_values.push_back(node.output);
  }

  // Of the instruction; ways that nothing was kept in yet have names only.
  KeepOption& keep_option(NodeSpec& node) const {
    const int number = instruction_->arguments.keep_option;
    says(number >= 0, "is kept in no way");
    while (node.keep_options() <= number) {
      node.further_options.emplace_back();
      node.further_options.back().name = fmt::format("way {}", node.keep_options() - 1);
    }
    return node.keep_option(number);
  }

  // What is summed over copies on other stages has such copies, and of what is summed over the
  // tensor group each of its ranks has a part.
  void sum_over(GroupAxis group) {
    for (const int p : made_in_[instruction_->arguments.inputs[0]]) {
      if (p < 0 || as_index(p) >= graph_.parameters.size()) continue;
      if (group == GroupAxis::Tied) graph_.parameters[as_index(p)].tied = true;
      if (group == GroupAxis::Tensor) graph_.parameters[as_index(p)].sums_over_tensor = true;
    }
  }

  void copy() {
    const int from = instruction_->arguments.inputs.at(0);
    const int to = instruction_->arguments.output;
    held_[as_index(to)] = Held(held_[as_index(from)]);
    const auto made = made_in_.find(from);
    if (made != made_in_.end()) made_in_[to] = std::set<int>(made->second);
  }

  void gather() {
    const Arguments& arguments = instruction_->arguments;
    const auto found =
        std::find_if(program_.buckets.begin(), program_.buckets.end(), [&](const Bucket& bucket) {
          return bucket.shard.elements > 0 && bucket.shard.parameter == arguments.inputs[0];
        });
    says(found != program_.buckets.end() && arguments.output >= 0,
         "gathers no shard of parameters");
    bucket_in_[as_index(arguments.output)] = static_cast<int>(found - program_.buckets.begin());
  }

  int parameter_at(const Range& range) {
    const int b = bucket_in_[as_index(range.buffer)];
    if (b >= 0) {
      const Bucket& bucket = program_.buckets[as_index(b)];
      const auto found = std::find(bucket.offsets.begin(), bucket.offsets.end(), range.offset);
      says(found != bucket.offsets.end(),
           fmt::format("no parameter begins at element {} of {}", range.offset,
                       program_.buffers[as_index(range.buffer)].name));
      return bucket.parameters[static_cast<std::size_t>(found - bucket.offsets.begin())];
    }
    // Where nothing is trained, parameters are known by their buffers alone.
    const auto [found, fresh] =
        whole_.try_emplace(range.buffer, static_cast<int>(graph_.parameters.size()));
    if (fresh || as_index(found->second) >= graph_.parameters.size()) {
      says(program_.pieces.empty(),
           program_.buffers[as_index(range.buffer)].name + " is no parameter that is trained");
      found->second = static_cast<int>(graph_.parameters.size());
      graph_.parameters.emplace_back();
      graph_.parameters.back().name = program_.buffers[as_index(range.buffer)].name;
      graph_.parameters.back().elements = range.elements;
    }
    return found->second;
  }

  const Program& program_;
  ModelGraph graph_;
  int number_ = -1;
  const Instruction* instruction_ = nullptr;
  int first_made_ = 0;          // value of the first node's output
  std::vector<Held> held_;      // by buffer
  std::vector<int> bucket_in_;  // by buffer: whose whole range it is; -1 = of none
  std::map<int, int> whole_;    // parameter by buffer, where it is not in shards
  std::vector<bool> seen_;      // by node
  std::set<std::tuple<int, int, Operation>> backwards_;  // node, way to be kept
  std::map<int, bool> exchanged_;                        // by buffer: of a forward
  std::map<int, std::set<int>> made_in_;  // by buffer: parameters whose gradients it has
};

}  // namespace

namespace {

// Of what updates take of whole parameters tensor ranks add up what each has a part of; what is
// equal on all of them only the first adds.
void mark_replicated(const Program& program, ModelGraph& graph) {
  std::set<int> over_tensor;              // buffers
  std::map<int, std::vector<int>> added;  // pieces, by buffer
  std::map<int, int> bucket_of;           // by buffer
  for (const Instruction& instruction : program.instructions) {
    const Arguments& arguments = instruction.arguments;
    if (instruction.operation == Operation::SumTensors) {
      added[arguments.output] = arguments.pieces;
      bucket_of[arguments.output] = instruction.bucket;
    }
    if (instruction.operation == Operation::AllReduce && instruction.channel &&
        instruction.channel->group == GroupAxis::Tensor)
      over_tensor.insert(arguments.inputs.begin(), arguments.inputs.end());
  }
  for (std::size_t id = 0; id < program.pieces.size(); ++id) {
    const Piece& piece = program.pieces[id];
    const int first_round = piece.sums.empty() ? -1 : piece.sums.front().buffer;
    const auto sums = added.find(first_round);
    if (sums == added.end() || piece.parameter < 0 ||
        as_index(piece.parameter) >= graph.parameters.size())
      continue;
    const auto& pieces = sums->second;
    const bool adds = std::find(pieces.begin(), pieces.end(), static_cast<int>(id)) != pieces.end();
    if (!over_tensor.contains(first_round) || !adds)
      graph.parameters[as_index(piece.parameter)].replicated = true;
  }
  // Other ranks may have all of a parameter.
  for (const auto& [sums, bucket] : bucket_of) {
    if (over_tensor.contains(sums) || bucket < 0 || as_index(bucket) >= program.buckets.size())
      continue;
    for (const int p : program.buckets[as_index(bucket)].parameters) {
      if (p >= 0 && as_index(p) < graph.parameters.size())
        graph.parameters[as_index(p)].replicated = true;
    }
  }
}

// Of parameters that have states or sums of their sides.
void find_sides(const Program& program, ModelGraph& graph) {
  for (const Piece& piece : program.pieces) {
    if (piece.parameter < 0 || as_index(piece.parameter) >= graph.parameters.size()) continue;
    MatrixSides& sides = graph.parameters[as_index(piece.parameter)].stored_sides;
    for (std::size_t k = 0; k < std::min(piece.states.size(), program.state_blocks.size()); ++k) {
      const MatrixSide side = program.state_blocks[k].side;
      if (side == MatrixSide::Rows) sides.rows = piece.states[k].elements;
      if (side == MatrixSide::Columns) sides.columns = piece.states[k].elements;
    }
    for (std::size_t k = 0; k < std::min(piece.sums.size(), program.tensor_sums.size()); ++k) {
      if (!program.tensor_sums[k].sides) continue;
      const std::int64_t both = piece.sums[k].elements - program.tensor_sums[k].numbers;
      if (sides.columns == 0) sides.columns = sides.rows > 0 ? both - sides.rows : 1;
      if (sides.rows == 0) sides.rows = both - sides.columns;
    }
  }
}

}  // namespace

ModelGraph implied_model(const Program& program) {
  ModelGraph graph = ImpliedModel(program).take();
  mark_replicated(program, graph);
  find_sides(program, graph);
  return graph;
}

}  // namespace garonne::plan
