#include "train/setup/model_operations.hpp"

#include <map>
#include <string>

namespace garonne::train {

double declared_operations(const plan::ModelGraph& graph) {
  double operations = 0;
  for (const plan::NodeSpec& node : graph.nodes) {
    operations += node.forward.floating_point_operations + node.backward.floating_point_operations +
                  node.backward_weight.floating_point_operations;
  }
  return operations;
}

double repeated_operations(const plan::ModelGraph& graph, const plan::Program& program) {
  std::map<std::string, double> forward;
  for (const plan::NodeSpec& node : graph.nodes)
    forward[node.name] = node.forward.floating_point_operations;
  double operations = 0;
  for (const plan::Instruction& instruction : program.instructions) {
    if (!instruction.recompute || !plan::is_forward(instruction.operation)) continue;
    const auto found = forward.find(instruction.node);
    if (found != forward.end()) operations += found->second;
  }
  return operations;
}

}  // namespace garonne::train
