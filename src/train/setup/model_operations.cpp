#include "train/setup/model_operations.hpp"

#include <map>
#include <string>

namespace garonne::train {
namespace {

// Attention keeps no scores: its backward makes them again, by one of its forward's two products.
double scores_again(const plan::NodeSpec& node) {
  return node.scores > 0 ? node.forward.floating_point_operations / 2 : 0;
}

}  // namespace

double declared_operations(const plan::ModelGraph& graph) {
  double operations = 0;
  for (const plan::NodeSpec& node : graph.nodes) {
    operations += node.forward.floating_point_operations + node.backward.floating_point_operations +
                  node.backward_weight.floating_point_operations - scores_again(node);
  }
  return operations;
}

double repeated_operations(const plan::ModelGraph& graph, const plan::Program& program) {
  std::map<std::string, const plan::NodeSpec*> nodes;
  for (const plan::NodeSpec& node : graph.nodes) nodes[node.name] = &node;
  double operations = 0;
  for (const plan::Instruction& instruction : program.instructions) {
    const auto found = nodes.find(instruction.node);
    if (found == nodes.end()) continue;
    if (instruction.recompute && plan::is_forward(instruction.operation))
      operations += found->second->forward.floating_point_operations;
    const bool takes_record = instruction.operation == plan::Operation::Backward ||
                              instruction.operation == plan::Operation::BackwardInput;
    if (takes_record) operations += scores_again(*found->second);
  }
  return operations;
}

}  // namespace garonne::train
