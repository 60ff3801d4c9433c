#include "plan/program/content_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/index.hpp"
#include "plan/program/held_content.hpp"
#include "plan/program/lasting_home.hpp"
#include "plan/program/replay.hpp"
#include "plan/program/whole_step_check.hpp"

namespace garonne::plan {
namespace {

const char* wire_text(std::optional<NumberType> wire) {
  return wire ? number_type_name(*wire) : "what gradients are summed in";
}

class ContentCheck {
 public:
  ContentCheck(const Program& program, const ModelGraph& graph)
      : program_(program),
        graph_(graph),
        homes_(lasting_homes(program)),
        held_(program.buffers.size()) {
    for (int n = 0; n < static_cast<int>(graph.nodes.size()); ++n) {
      const NodeSpec& node = graph.nodes[as_index(n)];
      if (!graph.has_backward(node)) continue;
      for (std::size_t i = 0; i < node.inputs.size(); ++i)
        wanted_[node.inputs[i]].insert({n, static_cast<int>(i)});
    }
    for (std::size_t id = 0; id < program.buffers.size(); ++id) {
      if (program.buffers[id].live_at_start) held_[id].lasting = static_cast<int>(id);
    }
    for (int b = 0; b < static_cast<int>(program.buckets.size()); ++b) {
      const Bucket& bucket = program.buckets[as_index(b)];
      if (bucket.shard.elements == 0) continue;
      const int home = homes_[as_index(bucket.shard.parameter)];
      bucket_of_shard_[bucket.shard.parameter] = b;
      for (std::size_t k = 0; k < bucket.parameters.size(); ++k)
        place_of_[bucket.parameters[k]] = {b, bucket.offsets[k]};
      // A whole range holds its parameters all the time, a shard only once it is gathered.
      if (home < 0) continue;
      if (bucket.shard.gathered < 0) {
        held_[as_index(home)].bucket = b;
      } else {
        held_[as_index(home)].shard = b;
      }
    }
  }

  void run() {
    for (number_ = 0; as_index(number_) < program_.instructions.size(); ++number_) {
      instruction_ = &program_.instructions[as_index(number_)];
      step();
      for (const int freed : instruction_->frees) held_[as_index(freed)] = HeldContent();
    }
    finish();
  }

 private:
  void says(bool holds, const std::string& reason) const {
    if (!holds) throw ReplayError(number_, describe(*instruction_), reason);
  }

  const std::string& name(int buffer) const { return program_.buffers[as_index(buffer)].name; }
  int micro_batch() const { return instruction_->micro_batch; }

  void step() {
    const Arguments& arguments = instruction_->arguments;
    switch (instruction_->operation) {
      case Operation::Load:
        for (const LoadedValue& loaded : arguments.loaded) make_value(loaded.buffer, loaded.value);
        break;
      case Operation::Forward:
      case Operation::ForwardKeep:
        arguments.exchanged < 0 ? forward() : begin_forward();
        break;
      case Operation::Backward:
      case Operation::BackwardWeight:
      case Operation::BackwardInput:
        arguments.exchanged < 0 ? backward() : begin_backward();
        break;
      case Operation::FinishForward:
      case Operation::FinishBackward:
        finish_pass();
        break;
      case Operation::Send:
        send();
        break;
      case Operation::Receive:
        receive();
        break;
      case Operation::ReduceScatter:
        if (arguments.exchanged >= 0) exchange();
        break;
      case Operation::AllGather:
        if (arguments.exchanged >= 0) {
          exchange();
        } else {
          gathers_message(*instruction_) ? gather_message() : gather();
        }
        break;
      case Operation::AllReduce:
        if (arguments.exchanged >= 0) exchange();
        break;
      case Operation::CopyOut:
      case Operation::CopyIn:
      case Operation::DiskWrite:
      case Operation::DiskRead:
        copy();
        break;
      case Operation::Update:
        update();
        break;
      case Operation::UpdateHost:
        update_on_host();
        break;
      case Operation::EmitLoss:
        expect_value(arguments.inputs[0], graph_.loss, "loss");
        says(emitted_.insert(micro_batch()).second, "counts the loss of a micro-batch twice");
        break;
      default:
        break;
    }
  }

  // Both hold it from now on: what comes back has to be what was taken away. Parameters that are
  // updated on the host are here when they have come back.
  void copy() {
    const int from = instruction_->arguments.inputs[0];
    const int to = instruction_->arguments.output;
    held_[as_index(to)] = HeldContent(held_[as_index(from)]);
    updated_.erase(to);
    if (updated_.contains(from)) updated_.insert(to);
    if (updated_on_host_.contains(from)) change_shard(to);
    updated_on_host_.erase(to);
  }

  void gather() {
    const Arguments& arguments = instruction_->arguments;
    const auto found = bucket_of_shard_.find(arguments.inputs[0]);
    says(found != bucket_of_shard_.end(), name(arguments.inputs[0]) + " is no shard of parameters");
    const bool whole = program_.buckets[as_index(found->second)].shard.gathered < 0;
    says(whole || held_[as_index(arguments.inputs[0])].shard == found->second,
         name(arguments.inputs[0]) + " does not hold its shard of parameters");
    if (arguments.output != arguments.inputs[0]) held_[as_index(arguments.output)] = HeldContent();
    held_[as_index(arguments.output)].bucket = found->second;
    updated_.erase(arguments.output);
  }

  // Of a whole range that ranks share, each has changed its own shard until all are gathered; what
  // was gathered before into other memory is of the old parameters.
  void update() {
    for (const int buffer : instruction_->writes) change_shard(buffer);
  }

  // What is made there of masters is the parameter again.
  void update_on_host() {
    const auto& reads = instruction_->reads;
    updated_on_host_.insert(instruction_->writes.begin(), instruction_->writes.end());
    for (const StandIn& one : instruction_->arguments.stand_ins) {
      if (std::find(reads.begin(), reads.end(), one.on_host) != reads.end()) continue;
      held_[as_index(one.on_host)] = HeldContent();
      held_[as_index(one.on_host)].lasting = homes_[as_index(one.buffer)];
    }
  }

  void change_shard(int buffer) {
    const auto found = bucket_of_shard_.find(buffer);
    if (found == bucket_of_shard_.end()) return;
    for (HeldContent& held : held_) {
      if (held.bucket == found->second) held.bucket = -1;
    }
    if (program_.buckets[as_index(found->second)].shard.gathered < 0) updated_.insert(buffer);
  }

  void make_value(int buffer, int value) {
    HeldContent& held = held_[as_index(buffer)] = HeldContent();
    held.value = value;
    held.micro_batch = micro_batch();
  }

  void expect_value(int buffer, int value, const char* role) const {
    const HeldContent& held = held_[as_index(buffer)];
    expect_whole(buffer);
    says(held.value == value && held.micro_batch == micro_batch(),
         fmt::format("{} is not its {}, {} of micro-batch {}", name(buffer), role,
                     graph_.values[as_index(value)].name, micro_batch()));
  }

  // Lasting buffers of whole parameters have the parameter's name, by which they are found.
  bool holds_lasting(int buffer, const std::string& parameter) const {
    const int lasting = held_[as_index(buffer)].lasting;
    return lasting >= 0 && name_on_device(program_.buffers[as_index(lasting)]) == parameter;
  }

  void expect_parameters(const NodeSpec& node) const {
    const auto& ranges = instruction_->arguments.parameters;
    for (std::size_t k = 0; k < ranges.size(); ++k) {
      const int p = node.parameters[k];
      const Range& range = ranges[k];
      const auto place = place_of_.find(p);
      const bool is = place == place_of_.end()
                          ? holds_lasting(range.buffer, graph_.parameters[as_index(p)].name)
                          : held_[as_index(range.buffer)].bucket == place->second.first;
      const std::int64_t offset = place == place_of_.end() ? 0 : place->second.second;
      says(is && range.offset == offset,
           fmt::format("{} does not hold {} at element {}", name(range.buffer),
                       graph_.parameters[as_index(p)].name, range.offset));
    }
  }

  const Gradient* gradient_in(int buffer, int value) const {
    for (const Gradient& gradient : held_[as_index(buffer)].gradients) {
      if (gradient.value == value && gradient.micro_batch == micro_batch()) return &gradient;
    }
    return nullptr;
  }

  void expect_whole(int buffer) const {
    says(!held_[as_index(buffer)].in_part,
         name(buffer) + " came in parts, which are not gathered from the other tensor ranks");
  }

  void expect_complete(int buffer, int value) const {
    expect_whole(buffer);
    const Gradient* const gradient = gradient_in(buffer, value);
    says(gradient != nullptr,
         fmt::format("{} is not the gradient of {} of micro-batch {}", name(buffer),
                     graph_.values[as_index(value)].name, micro_batch()));
    const auto wanted = wanted_.find(value);
    says(wanted != wanted_.end() && gradient->contributions == wanted->second,
         fmt::format("the gradient of {} is not complete", graph_.values[as_index(value)].name));
  }

  void forward() {
    const NodeSpec& node = graph_.nodes[as_index(instruction_->node_index)];
    const Arguments& arguments = instruction_->arguments;
    for (std::size_t i = 0; i < node.inputs.size(); ++i)
      expect_value(arguments.inputs[i], node.inputs[i], "input");
    expect_parameters(node);
    make_value(arguments.output, node.output);
    for (std::size_t slot = 0; slot < arguments.record.size(); ++slot) {
      HeldContent& held = held_[as_index(arguments.record[slot])] = HeldContent();
      held.node = instruction_->node_index;
      held.slot = static_cast<int>(slot);
      held.option = arguments.keep_option;
      held.micro_batch = micro_batch();
    }
    if (instruction_->operation == Operation::ForwardKeep)
      kept_as_[{instruction_->node_index, micro_batch()}] = arguments.keep_option;
    if (graph_.has_backward(node)) forwards_.insert({instruction_->node_index, micro_batch()});
  }

  void backward() {
    const int n = instruction_->node_index;
    const NodeSpec& node = graph_.nodes[as_index(n)];
    const Arguments& arguments = instruction_->arguments;
    says(backwards_.insert({n, micro_batch(), instruction_->operation}).second,
         "runs a pass of its backward twice");
    const auto kept = kept_as_.find({n, micro_batch()});
    says((kept == kept_as_.end() ? 0 : kept->second) == arguments.keep_option,
         "takes its record for one that is made in another way");
    expect_parameters(node);
    if (arguments.output_gradient >= 0) expect_complete(arguments.output_gradient, node.output);
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      if (arguments.inputs[i] >= 0)
        expect_value(arguments.inputs[i], node.inputs[i], "pinned input");
    }
    if (arguments.pinned_output >= 0)
      expect_value(arguments.pinned_output, node.output, "pinned output");
    for (std::size_t slot = 0; slot < arguments.record.size(); ++slot) {
      const HeldContent& held = held_[as_index(arguments.record[slot])];
      says(held.node == n && held.slot == static_cast<int>(slot) &&
               held.option == arguments.keep_option && held.micro_batch == micro_batch(),
           name(arguments.record[slot]) + " is not its private slot");
    }
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      if (arguments.input_gradients[i] >= 0) contribute(node, n, i);
    }
    // Nobody asks for the output's gradient again: what shares its storage has that for itself.
    if (arguments.output_gradient >= 0 && all_passes_ran(n, micro_batch()))
      forget_gradient(arguments.output_gradient, node.output);
  }

  // What is exchanged is neither a value nor a gradient until its pass is finished.
  void hand_to_collective(bool forward) {
    HeldContent& held = held_[as_index(instruction_->arguments.exchanged)] = HeldContent();
    held.exchanged_by = instruction_->node_index;
    held.of_forward = forward;
    held.micro_batch = micro_batch();
  }

  void begin_forward() {
    const NodeSpec& node = graph_.nodes[as_index(instruction_->node_index)];
    expect_value(instruction_->arguments.inputs[0], node.inputs[0], "input");
    hand_to_collective(true);
    if (graph_.has_backward(node)) forwards_.insert({instruction_->node_index, micro_batch()});
  }

  void begin_backward() {
    const int n = instruction_->node_index;
    const NodeSpec& node = graph_.nodes[as_index(n)];
    const int given = instruction_->arguments.output_gradient;
    says(backwards_.insert({n, micro_batch(), instruction_->operation}).second,
         "runs a pass of its backward twice");
    expect_complete(given, node.output);
    forget_gradient(given, node.output);
    hand_to_collective(false);
  }

  const HeldContent& expect_exchanged(bool came_back) const {
    const int buffer = instruction_->arguments.exchanged;
    const HeldContent& held = held_[as_index(buffer)];
    says(held.exchanged_by == instruction_->node_index && held.micro_batch == micro_batch() &&
             held.came_back == came_back,
         name(buffer) +
             (came_back ? " has not come back to the node" : " is not what the node exchanges"));
    return held;
  }

  void exchange() {
    const NodeSpec& node = graph_.nodes[as_index(instruction_->node_index)];
    const HeldContent& held = expect_exchanged(false);
    const NodeCollective& declared =
        held.of_forward ? node.forward_collective : node.backward_collective;
    says(to_string(instruction_->operation) == declared.kind,
         "is another collective than the node's, " + declared.kind);
    if (instruction_->channel) {
      const std::optional<NumberType> wire = instruction_->channel->wire;
      says(wire == declared.wire,
           fmt::format("travels in {} where the model's sums over tensor ranks do in {} "
                       "(grid.tensor_wire)",
                       wire_text(wire), wire_text(declared.wire)));
    }
    held_[as_index(instruction_->arguments.exchanged)].came_back = true;
  }

  void finish_pass() {
    const int n = instruction_->node_index;
    const NodeSpec& node = graph_.nodes[as_index(n)];
    const bool forward = instruction_->operation == Operation::FinishForward;
    says(expect_exchanged(true).of_forward == forward, "finishes another pass");
    if (forward) return make_value(instruction_->arguments.output, node.output);
    contribute(node, n, 0);
  }

  void forget_gradient(int buffer, int value) {
    std::erase_if(held_[as_index(buffer)].gradients, [&](const Gradient& one) {
      return one.value == value && one.micro_batch == micro_batch();
    });
  }

  bool all_passes_ran(int n, int micro_batch) const {
    const auto ran = [&](Operation operation) {
      return backwards_.contains({n, micro_batch, operation});
    };
    const NodeSpec& node = graph_.nodes[as_index(n)];
    if (!node.splits_backward) return ran(Operation::Backward);
    const bool has_input_pass = std::any_of(node.inputs.begin(), node.inputs.end(), [&](int input) {
      return graph_.values[as_index(input)].differentiable;
    });
    return ran(Operation::BackwardWeight) && (!has_input_pass || ran(Operation::BackwardInput));
  }

  void contribute(const NodeSpec& node, int n, std::size_t input) {
    const Arguments& arguments = instruction_->arguments;
    const int buffer = arguments.input_gradients[input];
    Gradient gradient{node.inputs[input], micro_batch(), {}};
    const int existing = arguments.accumulated[input];
    if (existing >= 0) {
      const Gradient* const there = gradient_in(existing, gradient.value);
      says(there != nullptr,
           fmt::format("adds to {}, which is not the gradient of {}", name(existing),
                       graph_.values[as_index(gradient.value)].name));
      gradient.contributions = there->contributions;
    }
    // What is added moves on, and is no name of the old storage any more.
    if (existing >= 0 && existing != buffer) forget_gradient(existing, gradient.value);
    says(gradient.contributions.insert({n, static_cast<int>(input)}).second,
         "contributes to a gradient twice");
    HeldContent& held = held_[as_index(buffer)];
    switch (arguments.placements[input]) {
      case Placement::Alias:
        break;
      case Placement::AddInPlace:
        says(held.gradients.size() == 1, name(buffer) + " is the gradient of something else, too");
        [[fallthrough]];
      default:
        held = HeldContent();
    }
    held.micro_batch = micro_batch();
    held.gradients.push_back(std::move(gradient));
  }

  // The forward of a node that hands over, or the gradient of what was received.
  void send() {
    const int buffer = instruction_->arguments.inputs.at(0);
    if (instruction_->arguments.gradient) {
      return expect_complete(buffer, instruction_->arguments.value);
    }
    const NodeSpec& node = graph_.nodes[as_index(instruction_->node_index)];
    expect_value(buffer, node.inputs[0], "input");
    if (instruction_->arguments.output >= 0)
      make_value(instruction_->arguments.output, node.output);
  }

  void receive() {
    const int buffer = instruction_->arguments.output;
    if (!instruction_->arguments.gradient) {
      make_value(buffer, instruction_->arguments.value);
    } else {
      const NodeSpec& node = graph_.nodes[as_index(instruction_->node_index)];
      held_[as_index(buffer)] = HeldContent();
      held_[as_index(buffer)].micro_batch = micro_batch();
      held_[as_index(buffer)].gradients = {
          {node.inputs[0], micro_batch(), {{instruction_->node_index, 0}}}};
    }
    held_[as_index(buffer)].in_part = is_part_of_message(*instruction_);
  }

  void gather_message() {
    const int buffer = instruction_->arguments.output;
    HeldContent& held = held_[as_index(buffer)];
    says(held.in_part, name(buffer) + " did not come in parts");
    held.in_part = false;
    if (!instruction_->arguments.gradient)
      return expect_value(buffer, instruction_->arguments.value, "message");
    const NodeSpec& node = graph_.nodes[as_index(instruction_->node_index)];
    says(gradient_in(buffer, node.inputs[0]) != nullptr,
         name(buffer) + " is another gradient than it says");
  }

  void finish() const {
    for (const int buffer : updated_) {
      throw ReplayError(number_, "end of the step",
                        name(buffer) + " was updated and is not gathered from the other ranks");
    }
    if (backwards_.empty()) return;
    for (const auto& [n, micro_batch] : forwards_) {
      if (!all_passes_ran(n, micro_batch)) {
        throw ReplayError(number_, "end of the step",
                          fmt::format("{} has no backward of micro-batch {}",
                                      graph_.nodes[as_index(n)].name, micro_batch));
      }
    }
  }

  const Program& program_;
  const ModelGraph& graph_;
  int number_ = 0;
  const Instruction* instruction_ = nullptr;
  const std::vector<int> homes_;                          // by buffer
  std::vector<HeldContent> held_;                         // by buffer
  std::map<int, int> bucket_of_shard_;                    // by buffer
  std::map<int, std::pair<int, std::int64_t>> place_of_;  // by parameter in shards: bucket, offset
  std::map<int, Contributions> wanted_;                   // by value
  std::set<int> emitted_;                                 // micro-batches
  std::set<int> updated_;                       // whole ranges that are not gathered since
  std::set<int> updated_on_host_;               // buffers there
  std::set<std::pair<int, int>> forwards_;      // (node, micro-batch), of nodes with a backward
  std::map<std::pair<int, int>, int> kept_as_;  // by (node, micro-batch): the way of its record
  std::set<std::tuple<int, int, Operation>> backwards_;
};

}  // namespace

void check_contents(const Program& program, const ModelGraph& graph) {
  ContentCheck(program, graph).run();
  check_whole_step(program, graph);
}

}  // namespace garonne::plan
