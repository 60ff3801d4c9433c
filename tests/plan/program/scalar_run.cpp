#include "plan/program/scalar_run.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <tuple>
#include <utility>

#include "plan/step/graphs.hpp"

namespace garonne::plan::test {
namespace {

// Between 0.5 and 1, the same for the same text.
double number_of(const std::string& text) {
  return 0.5 + static_cast<double>(std::hash<std::string>()(text) % 1000003) / 2000006.0;
}

double loaded_value(const std::string& name, int micro_batch) {
  return number_of(name + "#" + std::to_string(micro_batch));
}

// Whose gradient aliases that of the output has the factor 1.
double factor(const NodeSpec& node, std::size_t input) {
  return node.gradient_aliases[input] ? 1.0 : number_of(node.name + "<" + std::to_string(input));
}

double output_of(const NodeSpec& node, const std::vector<double>& inputs) {
  double output = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i) output += factor(node, i) * inputs[i];
  return output;
}

// The weight gradient of parameter k: the output's gradient times what is pinned.
double weight_gradient(const NodeSpec& node, std::size_t k, double output_gradient,
                       const std::function<double(int)>& pinned) {
  double sum = number_of(node.name + ">" + std::to_string(k));
  for (const int value : node.pinned_values) sum += pinned(value);
  return output_gradient * sum;
}

// One rank on its way through its Program.
class ScalarRank {
 public:
  // (from, to, tag) -> numbers under way, oldest first.
  using Messages = std::map<std::tuple<int, int, int>, std::vector<double>>;
  // (members, number of the sum) -> by rank: what it brings.
  using Sums =
      std::map<std::pair<std::vector<int>, int>, std::map<int, std::map<std::int64_t, double>>>;

  ScalarRank(const ModelGraph& graph, const Program& program, int rank, Messages& messages,
             Sums& sums)
      : graph_(graph), program_(program), rank_(rank), messages_(messages), sums_(sums) {}

  // Goes on as far as it can; whether it got anywhere.
  bool advance() {
    const std::size_t start = next_;
    while (next_ < program_.instructions.size() && step(program_.instructions[next_])) ++next_;
    return next_ > start;
  }
  bool done() const { return next_ == program_.instructions.size(); }
  double loss() const { return loss_; }
  const std::map<std::string, double>& gradients() const { return gradients_; }

 private:
  double read(int buffer, const Instruction& instruction) const {
    const auto found = value_.find(buffer);
    if (found != value_.end()) return found->second;
    ADD_FAILURE() << describe(instruction) << " reads " << program_.buffers[as_index(buffer)].name;
    return 0;
  }

  // False where it has to wait for another rank.
  bool step(const Instruction& instruction) {
    switch (instruction.operation) {
      case Operation::Load:
        load(instruction);
        break;
      case Operation::Forward:
      case Operation::ForwardKeep: {
        const NodeSpec& node = graph_.nodes[as_index(instruction.node_index)];
        std::vector<double> inputs;
        for (const int id : instruction.arguments.inputs) inputs.push_back(read(id, instruction));
        value_[instruction.arguments.output] = output_of(node, inputs);
        pack(node, inputs, instruction);
        break;
      }
      case Operation::Backward:
      case Operation::BackwardInput:
      case Operation::BackwardWeight:
        backward(instruction);
        break;
      case Operation::EmitLoss:
        loss_ += read(instruction.arguments.inputs[0], instruction);
        break;
      case Operation::Send: {
        const Channel& channel = *instruction.channel;
        messages_[{rank_, channel.members[as_index(channel.peer)], channel.tag}].push_back(
            read(instruction.arguments.inputs[0], instruction));
        if (instruction.arguments.output >= 0) value_[instruction.arguments.output] = 0;
        break;
      }
      case Operation::AllReduce:
        if (instruction.channel->group == GroupAxis::Tied)
          sums_[{instruction.channel->members, instruction.channel->tag}][rank_] =
              bucket_[instruction.arguments.inputs[0]];
        break;
      case Operation::Wait:
        if (!complete(program_.instructions[as_index(instruction.completes)])) return false;
        break;
      case Operation::SumSquares:
        for (const int id : instruction.arguments.pieces) {
          const Piece& piece = program_.pieces[as_index(id)];
          gradients_[graph_.parameters[as_index(piece.parameter)].name] =
              bucket_[piece.gradient.buffer].at(piece.gradient.offset);
        }
        break;
      default:
        break;
    }
    for (const int id : instruction.frees) value_.erase(id), packed_.erase(id);
    return true;
  }

  bool complete(const Instruction& waited) {
    const Channel& channel = *waited.channel;
    if (waited.operation == Operation::Receive) {
      auto& arrived = messages_[{channel.members[as_index(channel.peer)], rank_, channel.tag}];
      if (arrived.empty()) return false;
      value_[waited.arguments.output] = arrived.front();
      arrived.erase(arrived.begin());
    }
    if (waited.operation == Operation::AllReduce && channel.group == GroupAxis::Tied) {
      const auto& parts = sums_[{channel.members, channel.tag}];
      if (parts.size() < channel.members.size()) return false;
      auto& mine = bucket_[waited.arguments.inputs[0]];
      for (auto& [offset, sum] : mine) {
        sum = 0;
        for (const auto& [rank, part] : parts) sum += part.at(offset);
      }
    }
    return true;
  }

  void load(const Instruction& instruction) {
    for (const LoadedValue& loaded : instruction.arguments.loaded) {
      value_[loaded.buffer] =
          loaded_value(graph_.values[as_index(loaded.value)].name, instruction.micro_batch);
    }
  }

  // Of a node that is kept in a further way the first private slot holds what the first way pins
  // and this one does not.
  void pack(const NodeSpec& node, const std::vector<double>& inputs,
            const Instruction& instruction) {
    const Arguments& arguments = instruction.arguments;
    if (arguments.keep_option == 0 || arguments.record.empty()) return;
    auto& packed = packed_[arguments.record[0]];
    packed = {{node.output, value_[arguments.output]}};
    for (std::size_t i = 0; i < inputs.size(); ++i) packed[node.inputs[i]] = inputs[i];
  }

  double unpack(int value, const Instruction& instruction) const {
    const auto found = packed_.find(instruction.arguments.record.at(0));
    if (found != packed_.end()) return found->second.at(value);
    ADD_FAILURE() << describe(instruction) << " unpacks what was not packed";
    return 0;
  }

  void backward(const Instruction& instruction) {
    const NodeSpec& node = graph_.nodes[as_index(instruction.node_index)];
    const Arguments& arguments = instruction.arguments;
    const double output_gradient =
        graph_.starts_backward(node) ? 1.0 : read(arguments.output_gradient, instruction);
    for (std::size_t k = 0; k < arguments.parameter_gradients.size(); ++k) {
      const GradientTarget& target = arguments.parameter_gradients[k];
      const double gradient = weight_gradient(node, k, output_gradient, [&](int value) {
        const auto& pinned = node.keep_option(arguments.keep_option).pinned_values;
        if (std::find(pinned.begin(), pinned.end(), value) == pinned.end())
          return unpack(value, instruction);
        if (value == node.output) return read(arguments.pinned_output, instruction);
        const auto found = std::find(node.inputs.begin(), node.inputs.end(), value);
        return read(arguments.inputs[static_cast<std::size_t>(found - node.inputs.begin())],
                    instruction);
      });
      double& sum = bucket_[target.range.buffer][target.range.offset];
      sum = (target.accumulate ? sum : 0.0) + gradient;
    }
    std::vector<std::pair<int, double>> made;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      if (arguments.input_gradients[i] < 0) continue;
      double gradient = factor(node, i) * output_gradient;
      if (arguments.accumulated[i] >= 0) gradient += read(arguments.accumulated[i], instruction);
      made.emplace_back(arguments.input_gradients[i], gradient);
    }
    for (const auto& [buffer, gradient] : made) value_[buffer] = gradient;
  }

  const ModelGraph& graph_;
  const Program& program_;
  int rank_;
  Messages& messages_;
  Sums& sums_;
  std::size_t next_ = 0;
  double loss_ = 0;
  std::map<int, double> value_;                           // by buffer
  std::map<int, std::map<int, double>> packed_;           // by buffer and value
  std::map<int, std::map<std::int64_t, double>> bucket_;  // by buffer and offset
  std::map<std::string, double> gradients_;
};

}  // namespace

ScalarStep scalar_reference(const ModelGraph& whole, int micro_batches) {
  ScalarStep result;
  for (const auto& parameter : whole.parameters) result.gradients[parameter.name] = 0;
  for (int m = 0; m < micro_batches; ++m) {
    std::vector<double> values(whole.values.size(), 0);
    for (std::size_t v = 0; v < whole.values.size(); ++v) {
      if (whole.values[v].loaded) values[v] = loaded_value(whole.values[v].name, m);
    }
    for (const auto& node : whole.nodes) {
      std::vector<double> inputs;
      for (const int input : node.inputs) inputs.push_back(values[as_index(input)]);
      values[as_index(node.output)] = output_of(node, inputs);
    }
    result.loss += values[as_index(whole.loss)];
    std::vector<double> gradients(whole.values.size(), 0);
    gradients[as_index(whole.loss)] = 1;
    for (auto node = whole.nodes.rbegin(); node != whole.nodes.rend(); ++node) {
      const double output_gradient = gradients[as_index(node->output)];
      for (std::size_t k = 0; k < node->parameters.size(); ++k) {
        result.gradients[whole.parameters[as_index(node->parameters[k])].name] += weight_gradient(
            *node, k, output_gradient, [&](int value) { return values[as_index(value)]; });
      }
      for (std::size_t i = 0; i < node->inputs.size(); ++i)
        gradients[as_index(node->inputs[i])] += factor(*node, i) * output_gradient;
    }
  }
  return result;
}

ScalarStep scalar_run(const std::vector<ModelGraph>& graphs, const std::vector<Program>& programs) {
  ScalarRank::Messages messages;
  ScalarRank::Sums sums;
  std::vector<ScalarRank> ranks;
  for (std::size_t rank = 0; rank < programs.size(); ++rank)
    ranks.emplace_back(graphs[rank], programs[rank], static_cast<int>(rank), messages, sums);
  for (bool moved = true; moved;) {
    moved = false;
    for (auto& rank : ranks) moved = rank.advance() || moved;
  }
  ScalarStep result;
  for (const auto& rank : ranks) {
    EXPECT_TRUE(rank.done()) << "a rank waits for ever";
    result.loss += rank.loss();
    for (const auto& [name, gradient] : rank.gradients()) {
      const auto [found, fresh] = result.gradients.emplace(name, gradient);
      EXPECT_TRUE(fresh || found->second == gradient) << "copies of " << name << " differ";
    }
  }
  for (const auto& [ends, numbers] : messages)
    EXPECT_TRUE(numbers.empty()) << "a message is never received";
  return result;
}

}  // namespace garonne::plan::test
