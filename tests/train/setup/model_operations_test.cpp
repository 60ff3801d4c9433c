#include "train/setup/model_operations.hpp"

#include <gtest/gtest.h>

namespace garonne::train {
namespace {

plan::NodeSpec node(const std::string& name, double forward, double backward, double weights) {
  plan::NodeSpec spec;
  spec.name = name;
  spec.forward.floating_point_operations = forward;
  spec.backward.floating_point_operations = backward;
  spec.backward_weight.floating_point_operations = weights;
  return spec;
}

// A linear layer, and attention of two products forward and five backward, one of them scores
// again.
plan::ModelGraph graph() {
  plan::ModelGraph made;
  made.nodes = {node("linear", 100, 100, 100), node("attention", 2 * 7, 5 * 7, 0)};
  made.nodes[1].scores = 16;
  return made;
}

plan::Instruction instruction(plan::Operation operation, const std::string& name, bool again) {
  plan::Instruction made;
  made.operation = operation;
  made.node = name;
  made.recompute = again;
  return made;
}

TEST(ModelOperations, AreThoseOfForwardAndBackwardWithoutScoresAgain) {
  EXPECT_DOUBLE_EQ(declared_operations(graph()), 300 + 6 * 7);
}

TEST(ModelOperations, OfAProgramAreAlsoWhatItRunsAgain) {
  using plan::Operation;
  plan::Program program;
  program.instructions = {instruction(Operation::Forward, "linear", false),
                          instruction(Operation::ForwardKeep, "attention", false),
                          instruction(Operation::ForwardKeep, "linear", true),
                          instruction(Operation::Forward, "attention", true),
                          instruction(Operation::Backward, "attention", false),
                          instruction(Operation::BackwardInput, "linear", false),
                          instruction(Operation::BackwardWeight, "linear", false),
                          instruction(Operation::Forward, "of another stage", true)};
  EXPECT_DOUBLE_EQ(repeated_operations(graph(), program), 100 + 2 * 7 + 7);
}

}  // namespace
}  // namespace garonne::train
