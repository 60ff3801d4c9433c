#include "plan/program/whole_step_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/index.hpp"
#include "plan/program/replay.hpp"

namespace garonne::plan {
namespace {

// (node, micro-batch).
using Passes = std::set<std::pair<int, int>>;

// What a buffer of gradients has.
struct Accumulated {
  std::map<int, Passes> passes;  // by parameter
  std::set<GroupAxis> summed_over;
};

class WholeStepCheck {
 public:
  WholeStepCheck(const Program& program, const ModelGraph& graph)
      : program_(program),
        graph_(graph),
        micro_batches_of_(graph.nodes.size()),
        updated_(graph.parameters.size()),
        squared_(program.pieces.size()) {
    for (const Instruction& instruction : program.instructions) {
      if (is_backward(instruction.operation)) trains_ = true;
      const auto& channel = instruction.channel;
      if (channel && channel->group == GroupAxis::Tensor && channel->members.size() > 1)
        in_tensor_group_ = true;
      if (is_forward(instruction.operation))
        micro_batches_of_[as_index(instruction.node_index)].insert(instruction.micro_batch);
    }
    for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
      const NodeSpec& node = graph.nodes[n];
      if (node.output == graph.loss && graph.loss >= 0)
        losses_.insert(micro_batches_of_[n].begin(), micro_batches_of_[n].end());
      if (!graph.has_backward(node)) continue;
      for (const int p : node.parameters) {
        for (const int micro_batch : micro_batches_of_[n])
          wanted_[p].emplace(static_cast<int>(n), micro_batch);
      }
    }
  }

  void run() {
    if (!trains_) return;
    check_micro_batches();
    check_pieces();
    for (number_ = 0; as_index(number_) < program_.instructions.size(); ++number_) {
      instruction_ = &program_.instructions[as_index(number_)];
      step();
      for (const int freed : instruction_->frees) gradients_.erase(freed);
    }
  }

 private:
  void says(bool holds, const std::string& reason) const {
    if (holds) return;
    throw ReplayError(number_, instruction_ == nullptr ? "the step" : describe(*instruction_),
                      reason);
  }

  const std::string& name(int buffer) const { return program_.buffers[as_index(buffer)].name; }

  const std::string& parameter(int p) const { return graph_.parameters[as_index(p)].name; }

  // Nodes of a chunk have the same ones. A stage may have a micro-batch in some of its chunks,
  // where it takes one of several directions; then every micro-batch is in as many.
  void check_micro_batches() const {
    std::map<int, const std::set<int>*> of_chunk;
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n) {
      const NodeSpec& node = graph_.nodes[n];
      if (!graph_.has_backward(node) || node.hands_over) continue;
      const auto [first, fresh] = of_chunk.try_emplace(node.chunk, &micro_batches_of_[n]);
      says(*first->second == micro_batches_of_[n],
           fmt::format("{} has other micro-batches than the nodes before it", node.name));
    }
    std::vector<int> chunks(as_index(program_.micro_batches), 0);
    for (const auto& [chunk, micro_batches] : of_chunk) {
      for (const int micro_batch : *micro_batches) ++chunks[as_index(micro_batch)];
    }
    for (std::size_t m = 0; m < chunks.size(); ++m) {
      says(chunks[m] > 0 && chunks[m] == chunks[0],
           fmt::format("micro-batch {} goes through {} of the chunks of its nodes, micro-batch 0 "
                       "through {}",
                       m, chunks[m], chunks[0]));
    }
  }

  // Of parameters that are not in shards the rank trains every element. What other ranks train of
  // shards is theirs to say.
  void check_pieces() const {
    std::vector<bool> in_shards(graph_.parameters.size(), false);
    for (const Bucket& bucket : program_.buckets) {
      for (const int p : bucket.parameters) in_shards[as_index(p)] = bucket.shard.elements > 0;
    }
    std::vector<std::int64_t> elements(graph_.parameters.size(), 0);
    for (const Piece& piece : program_.pieces)
      elements[as_index(piece.parameter)] += piece.trained.elements;
    for (const auto& [p, passes] : wanted_) {
      says(in_shards[as_index(p)] ||
               elements[as_index(p)] == graph_.parameters[as_index(p)].elements,
           fmt::format("{} elements of {} are trained, which has {}", elements[as_index(p)],
                       parameter(p), graph_.parameters[as_index(p)].elements));
    }
  }

  void step() {
    const Arguments& arguments = instruction_->arguments;
    switch (instruction_->operation) {
      case Operation::Forward:
      case Operation::ForwardKeep:
        expect_old_parameters();
        break;
      case Operation::Backward:
      case Operation::BackwardWeight:
      case Operation::BackwardInput:
        expect_old_parameters();
        contribute();
        break;
      case Operation::AllReduce:
      case Operation::ReduceScatter:
        if (arguments.exchanged < 0) sum_over_ranks();
        break;
      case Operation::KeepShard:
        keep_shard();
        break;
      case Operation::CopyOut:
      case Operation::CopyIn:
      case Operation::DiskWrite:
      case Operation::DiskRead:
        copy();
        break;
      case Operation::EmitLoss:
        says(!summed_over_ranks_, "adds a loss to sums that all ranks have added up");
        says(emitted_.empty() || *emitted_.rbegin() < instruction_->micro_batch,
             "adds the losses of micro-batches in another order than theirs");
        emitted_.insert(instruction_->micro_batch);
        break;
      case Operation::SumSquares:
        says(!summed_over_ranks_, "adds squares to sums that all ranks have added up");
        for (const int id : arguments.pieces) {
          expect_complete(program_.pieces[as_index(id)]);
          squared_[as_index(id)] = true;
        }
        has_squares_ = true;
        break;
      case Operation::Norm:
        says(has_squares_, "makes the norm of no squares");
        expect_sums();
        break;
      case Operation::SumTensors:
        for (const int id : arguments.pieces) expect_complete(program_.pieces[as_index(id)]);
        expect_sums_of_tensors(false);
        tensor_sums_[arguments.output] = {arguments.pieces, {}};
        break;
      case Operation::UpdateHost:
        for (const int id : arguments.pieces) {
          expect_complete(piece_of(program_, *instruction_, id));
          expect_whole(program_.pieces[as_index(id)]);
        }
        [[fallthrough]];
      case Operation::Update:
        update();
        break;
      case Operation::Report:
        expect_sums();
        break;
      default:
        break;
    }
  }

  void expect_old_parameters() const {
    if (instruction_->arguments.parameters.empty()) return;
    for (const int p : graph_.nodes[as_index(instruction_->node_index)].parameters) {
      says(!updated_[as_index(p)],
           "reads " + parameter(p) + ", which is updated, where it wants that of the step before");
    }
  }

  void contribute() {
    for (const GradientTarget& target : instruction_->arguments.parameter_gradients) {
      Accumulated& there = gradients_[target.range.buffer];
      says(there.summed_over.empty(),
           "adds to " + name(target.range.buffer) + ", which ranks have summed already");
      Passes& passes = there.passes[target.parameter];
      if (!target.accumulate) passes.clear();
      says(passes.emplace(instruction_->node_index, instruction_->micro_batch).second,
           "adds to the gradient of " + parameter(target.parameter) + " twice");
    }
  }

  void sum_over_ranks() {
    if (!instruction_->channel) return;
    const GroupAxis group = instruction_->channel->group;
    if (group == GroupAxis::World) {
      expect_sums();
      says(!summed_over_ranks_, "adds up the sums of the step twice");
      summed_over_ranks_ = true;
      return;
    }
    const int buffer = instruction_->arguments.inputs[0];
    if (const auto sums = tensor_sums_.find(buffer); sums != tensor_sums_.end()) {
      says(sums->second.over.insert(group).second,
           fmt::format("adds up {} over the {} group twice", name(buffer), to_string(group)));
      return;
    }
    says(gradients_[buffer].summed_over.insert(group).second,
         fmt::format("sums {} over the {} group twice", name(buffer), to_string(group)));
  }

  // Other passes are added to those that are there, of a gradient that the same ranks have summed.
  void keep_shard() {
    const GradientTarget& target = instruction_->arguments.parameter_gradients[0];
    const Accumulated& from = gradients_[instruction_->arguments.inputs[0]];
    Accumulated& to = gradients_[target.range.buffer];
    if (!target.accumulate) {
      to = from;
      return;
    }
    says(to.summed_over == from.summed_over, "adds a gradient to one that other ranks have summed");
    for (const auto& [p, passes] : from.passes) {
      for (const auto& pass : passes) {
        says(to.passes[p].insert(pass).second,
             "adds to the gradient of " + parameter(p) + " twice");
      }
    }
  }

  void copy() {
    const auto from = gradients_.find(instruction_->arguments.inputs[0]);
    if (from == gradients_.end()) {
      gradients_.erase(instruction_->arguments.output);
    } else {
      gradients_[instruction_->arguments.output] = Accumulated(from->second);
    }
  }

  void expect_complete(const Piece& piece) const {
    const int p = piece.parameter;
    const auto there = gradients_.find(piece.gradient.buffer);
    const auto wanted = wanted_.find(p);
    const std::size_t all = wanted == wanted_.end() ? 0 : wanted->second.size();
    std::size_t have = 0;
    if (there != gradients_.end()) {
      const auto passes = there->second.passes.find(p);
      if (passes != there->second.passes.end()) have = passes->second.size();
    }
    // No pass is in it that is not wanted: what has run is what is wanted.
    says(have == all,
         fmt::format("the gradient of {} has {} of its {} contributions", parameter(p), have, all));
    const auto expect_summed = [&](GroupAxis group, bool is_to_be, const char* over) {
      const bool is = there != gradients_.end() && there->second.summed_over.contains(group);
      says(is == is_to_be, fmt::format("the gradient of {} is {}summed over {}", parameter(p),
                                       is ? "" : "not ", over));
    };
    const ParameterSpec& spec = graph_.parameters[as_index(p)];
    expect_summed(GroupAxis::Tensor, spec.sums_over_tensor, "the tensor group");
    expect_summed(GroupAxis::Tied, spec.tied, "copies on other stages");
  }

  // All losses and squares are in the sums of the step.
  void expect_sums() const {
    says(emitted_ == losses_, fmt::format("{} of {} losses are in the sums of the step",
                                          emitted_.size(), losses_.size()));
    says(std::find(squared_.begin(), squared_.end(), false) == squared_.end(),
         "the squares of a gradient are not in the sums of the step");
  }

  bool is_cut(int p) const {
    return in_tensor_group_ && !graph_.parameters[as_index(p)].replicated;
  }

  // Where an update makes the sums of its parameter itself.
  void expect_whole(const Piece& piece) const {
    const ParameterSpec& spec = graph_.parameters[as_index(piece.parameter)];
    says(
        piece.sums.empty() || (piece.trained.elements == spec.elements && !is_cut(piece.parameter)),
        "sums a part of " + spec.name + " where it wants the whole");
  }

  // What an update takes of whole parameters is of all tensor ranks that have parts of them, and of
  // each element once.
  void expect_sums_of_tensors(bool updates) const {
    const auto& inputs = instruction_->arguments.inputs;
    for (std::size_t k = 1; k < inputs.size(); ++k) expect_sums_of_tensors(inputs[k], updates);
  }

  void expect_sums_of_tensors(int buffer, bool updates) const {
    const Arguments& arguments = instruction_->arguments;
    const auto sums = tensor_sums_.find(buffer);
    says(sums != tensor_sums_.end(), "takes sums of parameters that nobody has made");
    const auto& [pieces, over] = sums->second;
    std::vector<int> parameters;
    if (instruction_->bucket >= 0 && as_index(instruction_->bucket) < program_.buckets.size())
      parameters = program_.buckets[as_index(instruction_->bucket)].parameters;
    for (const int id : arguments.pieces)
      parameters.push_back(program_.pieces[as_index(id)].parameter);
    const bool over_tensor =
        std::any_of(parameters.begin(), parameters.end(), [&](int p) { return is_cut(p); });
    says(over.contains(GroupAxis::Tensor) == over_tensor,
         fmt::format("takes {}, which is {}summed over the tensor group", name(sums->first),
                     over_tensor ? "not " : ""));
    std::vector<int> counted = arguments.pieces;
    if (updates && over_tensor && program_.coordinates.tensor != 0) {
      std::erase_if(counted,
                    [&](int id) { return !is_cut(program_.pieces[as_index(id)].parameter); });
    }
    says(counted == pieces, "takes sums of other pieces than it updates");
  }

  void update() {
    expect_sums_of_tensors(true);
    for (const int id : instruction_->arguments.pieces)
      updated_[as_index(program_.pieces[as_index(id)].parameter)] = true;
    // Of a bucket in shards the other ranks update the rest at the same time.
    for (const Bucket& bucket : program_.buckets) {
      if (bucket.shard.elements == 0 || !changes(bucket.shard.parameter)) continue;
      for (const int p : bucket.parameters) updated_[as_index(p)] = true;
    }
  }

  // Where it stands, or what stands in for it.
  bool changes(int buffer) const {
    const auto& writes = instruction_->writes;
    if (std::find(writes.begin(), writes.end(), buffer) != writes.end()) return true;
    const auto& stand_ins = instruction_->arguments.stand_ins;
    return std::any_of(stand_ins.begin(), stand_ins.end(),
                       [&](const StandIn& one) { return one.buffer == buffer; });
  }

  const Program& program_;
  const ModelGraph& graph_;
  int number_ = -1;
  const Instruction* instruction_ = nullptr;
  bool trains_ = false;
  std::vector<std::set<int>> micro_batches_of_;  // by node
  std::set<int> losses_;                         // micro-batches that have one on this stage
  std::map<int, Passes> wanted_;                 // by parameter
  std::map<int, Accumulated> gradients_;         // by buffer
  struct TensorSums {
    std::vector<int> pieces;
    std::set<GroupAxis> over;
  };
  std::map<int, TensorSums> tensor_sums_;  // by buffer
  bool in_tensor_group_ = false;           // with others
  std::set<int> emitted_;                  // micro-batches
  std::vector<bool> updated_;              // by parameter
  std::vector<bool> squared_;              // by piece
  bool has_squares_ = false;
  bool summed_over_ranks_ = false;
};

}  // namespace

void check_whole_step(const Program& program, const ModelGraph& graph) {
  WholeStepCheck(program, graph).run();
}

}  // namespace garonne::plan
