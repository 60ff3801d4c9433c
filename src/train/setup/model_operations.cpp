#include "train/setup/model_operations.hpp"

namespace garonne::train {

double declared_operations(const plan::ModelGraph& graph) {
  double operations = 0;
  for (const plan::NodeSpec& node : graph.nodes) {
    operations += node.forward.floating_point_operations + node.backward.floating_point_operations +
                  node.backward_weight.floating_point_operations;
  }
  return operations;
}

}  // namespace garonne::train
