// Programs carried out on numbers: every value is one number, every node a made-up function of its
// inputs whose gradient is known. Slow and obvious; for tests.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "plan/model/model_graph.hpp"
#include "plan/program/program.hpp"

namespace garonne::plan::test {

// What a step comes to: the loss over its micro-batches, the gradient of each parameter by name.
struct ScalarStep {
  double loss = 0;
  std::map<std::string, double> gradients;
};

// The step of the whole model as the chain rule has it, without any Program.
ScalarStep scalar_reference(const ModelGraph& whole, int micro_batches);

// Runs the Programs of a pipeline, one a stage, with their graphs: messages and the sums over
// copies of parameters included. A gradient that several stages have must be equal on all of them.
// Reports failures to GoogleTest.
ScalarStep scalar_run(const std::vector<ModelGraph>& graphs, const std::vector<Program>& programs);

}  // namespace garonne::plan::test
