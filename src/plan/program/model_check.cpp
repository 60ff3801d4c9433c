#include "plan/program/model_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/index.hpp"
#include "plan/program/replay.hpp"

namespace garonne::plan {
namespace {

template <typename Entry>
bool is_of(int id, const std::vector<Entry>& table) {
  return id >= 0 && as_index(id) < table.size();
}

class ModelCheck {
 public:
  ModelCheck(const Program& program, const ModelGraph& graph) : program_(program), graph_(graph) {}

  void run() {
    check_layout();
    for (number_ = 0; as_index(number_) < program_.instructions.size(); ++number_) {
      instruction_ = &program_.instructions[as_index(number_)];
      check_arguments();
      check_operation();
    }
  }

 private:
  void says(bool holds, const std::string& reason) const {
    if (holds) return;
    throw ReplayError(
        number_, instruction_ == nullptr ? "what is trained" : describe(*instruction_), reason);
  }

  void has_bytes(int buffer, std::int64_t bytes, const char* role) const {
    says(is_of(buffer, program_.buffers), fmt::format("has no {}", role));
    const Buffer& found = program_.buffers[as_index(buffer)];
    says(found.bytes >= bytes, fmt::format("has {} bytes for its {} in {} where the model has {}",
                                           found.bytes, role, found.name, bytes));
  }

  void check_layout() const {
    std::vector<int> laid_out(graph_.parameters.size(), 0);
    for (const Bucket& bucket : program_.buckets) {
      const BucketShard& shard = bucket.shard;
      std::int64_t next = 0;
      says(bucket.parameters.size() == bucket.offsets.size(), "a bucket lacks offsets");
      for (std::size_t k = 0; k < bucket.parameters.size(); ++k) {
        says(is_of(bucket.parameters[k], graph_.parameters), "a bucket is of no parameter");
        ++laid_out[as_index(bucket.parameters[k])];
        says(bucket.offsets[k] == next, "a bucket has a gap, or an overlap");
        next += graph_.parameters[as_index(bucket.parameters[k])].elements;
      }
      says(next == bucket.elements, "a bucket has other elements than its parameters");
      if (shard.elements == 0) continue;
      std::vector<int> ids = shard.states;
      ids.push_back(shard.parameter);
      if (!program_.pieces.empty()) ids.push_back(bucket.buffer);
      for (const int id : {shard.master, shard.gathered, shard.gradient}) {
        if (id >= 0) ids.push_back(id);
      }
      says(std::all_of(ids.begin(), ids.end(), [&](int id) { return is_of(id, program_.buffers); }),
           "a shard has no buffer");
    }
    says(program_.buckets.empty() ||
             std::all_of(laid_out.begin(), laid_out.end(), [](int times) { return times == 1; }),
         "a parameter is not in one bucket");
    for (const Piece& piece : program_.pieces) {
      says(is_of(piece.parameter, graph_.parameters), "a piece is of no parameter");
      says(piece.first <=
               graph_.parameters[as_index(piece.parameter)].elements - piece.trained.elements,
           "a piece goes beyond its parameter");
      check_sides(piece);
    }
  }

  // What is of whole parameters has the numbers of their sides.
  void check_sides(const Piece& piece) const {
    const MatrixSides sides = graph_.parameters[as_index(piece.parameter)].sides();
    const auto counts = [&](const Range& range, std::int64_t wanted, const char* what) {
      says(range.elements == wanted,
           fmt::format("has {} numbers for the {} of {} where they are {}", range.elements, what,
                       graph_.parameters[as_index(piece.parameter)].name, wanted));
    };
    for (std::size_t k = 0; k < piece.states.size(); ++k) {
      const StateBlocks blocks = blocks_of(program_, k);
      if (blocks.of_whole()) counts(piece.states[k], blocks.count(0, sides), "state");
    }
    if (program_.tensor_sums.empty()) return;
    says(piece.sums.size() == program_.tensor_sums.size(), "a piece has sums of other rounds");
    for (std::size_t round = 0; round < piece.sums.size(); ++round)
      counts(piece.sums[round], program_.tensor_sums[round].count(sides), "sums");
  }

  // What any instruction may have.
  void check_arguments() const {
    const Arguments& arguments = instruction_->arguments;
    const bool of_micro_batch = instruction_->operation == Operation::Load ||
                                is_forward(instruction_->operation) ||
                                is_backward(instruction_->operation) || arguments.exchanged >= 0;
    says(!of_micro_batch ||
             (instruction_->micro_batch >= 0 && instruction_->micro_batch < program_.micro_batches),
         "is of no micro-batch");
    for (const LoadedValue& loaded : arguments.loaded) {
      says(is_of(loaded.value, graph_.values) && graph_.values[as_index(loaded.value)].loaded,
           "loads what is no input of the model");
      has_bytes(loaded.buffer, graph_.values[as_index(loaded.value)].bytes, "input");
    }
    for (const GradientTarget& target : arguments.parameter_gradients) {
      says(instruction_->operation == Operation::KeepShard ||
               is_of(target.parameter, graph_.parameters),
           "makes the gradient of no parameter");
    }
  }

  void check_send() const {
    takes_one();
    if (instruction_->arguments.gradient) {
      says(is_of(instruction_->arguments.value, graph_.values),
           "sends the gradient of no value of the model");
      check_part(instruction_->arguments.value);
    } else {
      check_part(node().inputs[0]);
    }
  }

  // What all tensor ranks have may go in parts.
  void check_part(int value) const {
    if (!is_part_of_message(*instruction_)) return;
    const ValueSpec& spec = graph_.values[as_index(value)];
    says(spec.replicated, spec.name + " goes in parts, and not all tensor ranks have it");
    const Buffer& whole = program_.buffers[as_index(instruction_->arguments.part.buffer)];
    says(whole.elements == spec.elements(),
         fmt::format("{} goes in parts of {} elements where it has {}", spec.name, whole.elements,
                     spec.elements()));
  }

  void check_receive() const {
    const Arguments& arguments = instruction_->arguments;
    says(is_of(arguments.value, graph_.values), "receives no value of the model");
    has_bytes(arguments.output, graph_.values[as_index(arguments.value)].bytes, "message");
    check_part(arguments.gradient ? node().inputs[0] : arguments.value);
  }

  void check_operation() const {
    const Arguments& arguments = instruction_->arguments;
    switch (instruction_->operation) {
      case Operation::Send:
        check_send();
        break;
      case Operation::Receive:
        check_receive();
        break;
      case Operation::Forward:
      case Operation::ForwardKeep:
        check_forward(node());
        break;
      case Operation::Backward:
      case Operation::BackwardWeight:
      case Operation::BackwardInput:
        check_backward(node());
        break;
      case Operation::FinishForward:
        has_bytes(arguments.output, graph_.values[as_index(exchanging(true).output)].bytes,
                  "output");
        break;
      case Operation::FinishBackward:
        has_bytes(arguments.input_gradients.at(0),
                  graph_.values[as_index(exchanging(false).inputs[0])].bytes, "input gradient");
        break;
      case Operation::Update:
      case Operation::UpdateHost:
        says(program_.buckets.empty() || is_of(instruction_->bucket, program_.buckets),
             "updates no bucket");
        takes_one_and_sums();
        break;
      case Operation::SumTensors:
        takes_one_and_sums();
        break;
      case Operation::EmitLoss:
      case Operation::KeepShard:
      case Operation::Norm:
      case Operation::CopyOut:
      case Operation::CopyIn:
      case Operation::DiskWrite:
      case Operation::DiskRead:
        takes_one();
        break;
      case Operation::AllReduce:
      case Operation::ReduceScatter:
      case Operation::AllGather:
        takes_one();
        if (arguments.exchanged >= 0) node();
        if (gathers_message(*instruction_)) {
          says(is_of(arguments.value, graph_.values), "gathers no value of the model");
          if (arguments.gradient) node();
        }
        break;
      case Operation::Report:
        says(arguments.inputs.size() <= 2, "hands out at most two things");
        break;
      default:
        break;
    }
  }

  void takes_one_and_sums() const {
    const auto& inputs = instruction_->arguments.inputs;
    says(!inputs.empty() && std::all_of(inputs.begin(), inputs.end(),
                                        [&](int id) { return is_of(id, program_.buffers); }),
         "takes one input, and sums of parameters where there are any");
  }

  void takes_one() const {
    const auto& inputs = instruction_->arguments.inputs;
    says(inputs.size() == 1 && is_of(inputs[0], program_.buffers), "takes one input");
  }

  const NodeSpec& node() const {
    says(is_of(instruction_->node_index, graph_.nodes) &&
             graph_.nodes[as_index(instruction_->node_index)].name == instruction_->node,
         "is of no node of the model");
    return graph_.nodes[as_index(instruction_->node_index)];
  }

  void check_parameters(const NodeSpec& node) const {
    const auto& ranges = instruction_->arguments.parameters;
    says(ranges.size() == node.parameters.size(), "reads another number of parameters");
    for (std::size_t k = 0; k < ranges.size(); ++k) {
      says(ranges[k].elements == graph_.parameters[as_index(node.parameters[k])].elements,
           "reads a parameter of another size");
    }
  }

  const KeepOption& keep_option(const NodeSpec& node) const {
    const int number = instruction_->arguments.keep_option;
    says(number >= 0 && number < node.keep_options(), "is kept in no way of the node");
    return node.keep_option(number);
  }

  void check_record(const NodeSpec& node) const {
    const auto& record = instruction_->arguments.record;
    const auto& slots = keep_option(node).private_slot_bytes;
    says(record.size() == slots.size(), "has another number of private slots");
    for (std::size_t slot = 0; slot < record.size(); ++slot)
      has_bytes(record[slot], slots[slot], "private slot");
  }

  // The node of a part of a pass that is divided.
  const NodeSpec& exchanging(bool forward) const {
    const NodeSpec& found = node();
    const NodeCollective& collective =
        forward ? found.forward_collective : found.backward_collective;
    says(!collective.kind.empty(), "is divided, and its node exchanges nothing in this pass");
    has_bytes(instruction_->arguments.exchanged, collective.buffer_bytes, "collective");
    return found;
  }

  void check_forward(const NodeSpec& node) const {
    const Arguments& arguments = instruction_->arguments;
    says(arguments.inputs.size() == node.inputs.size(), "takes another number of inputs");
    for (std::size_t i = 0; i < node.inputs.size(); ++i)
      has_bytes(arguments.inputs[i], graph_.values[as_index(node.inputs[i])].bytes, "input");
    if (arguments.exchanged >= 0) return static_cast<void>(exchanging(true));
    says(node.forward_collective.kind.empty(), "is not divided at its collective");
    has_bytes(arguments.output, graph_.values[as_index(node.output)].bytes, "output");
    check_parameters(node);
    if (instruction_->operation == Operation::ForwardKeep) check_record(node);
  }

  void check_backward(const NodeSpec& node) const {
    const Arguments& arguments = instruction_->arguments;
    const KeepOption& kept = keep_option(node);
    const bool weights = instruction_->operation != Operation::BackwardInput;
    const bool inputs = instruction_->operation != Operation::BackwardWeight;
    says(graph_.has_backward(node) &&
             node.splits_backward == (instruction_->operation != Operation::Backward),
         "is no pass of the node");
    if (arguments.exchanged >= 0) {
      says(graph_.values[as_index(exchanging(false).inputs[0])].differentiable,
           "makes a gradient that nobody wants");
      return;
    }
    says(node.backward_collective.kind.empty(), "is not divided at its collective");
    says(arguments.inputs.size() == node.inputs.size(), "takes another number of inputs");
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const bool differentiable = graph_.values[as_index(node.inputs[i])].differentiable;
      says((arguments.input_gradients.at(i) >= 0) == (inputs && differentiable),
           "makes a gradient that nobody wants, or not one that is wanted");
      if (arguments.input_gradients[i] >= 0) {
        has_bytes(arguments.input_gradients[i], graph_.values[as_index(node.inputs[i])].bytes,
                  "input gradient");
      }
      const bool pinned = weights && is_pinned(kept, node.inputs[i]);
      says((arguments.inputs[i] >= 0) == pinned, "is not handed the inputs that it pins");
    }
    says((arguments.pinned_output >= 0) == (weights && is_pinned(kept, node.output)),
         "is not handed the output that it pins");
    says((arguments.output_gradient >= 0) == !graph_.starts_backward(node),
         "has no gradient of its output, or one that is nobody's");
    if (inputs) check_parameters(node);
    if (!weights) return;
    check_record(node);
    const auto& targets = arguments.parameter_gradients;
    says(targets.size() == node.parameters.size(), "makes another number of weight gradients");
    for (std::size_t k = 0; k < targets.size(); ++k) {
      says(
          targets[k].parameter == node.parameters[k] &&
              targets[k].range.elements == graph_.parameters[as_index(node.parameters[k])].elements,
          "makes the gradient of another parameter");
    }
  }

  static bool is_pinned(const KeepOption& kept, int value) {
    return std::find(kept.pinned_values.begin(), kept.pinned_values.end(), value) !=
           kept.pinned_values.end();
  }

  const Program& program_;
  const ModelGraph& graph_;
  int number_ = -1;
  const Instruction* instruction_ = nullptr;
};

}  // namespace

void check_against_model(const Program& program, const ModelGraph& graph) {
  ModelCheck(program, graph).run();
}

}  // namespace garonne::plan
