// A record kind that is added here: plans that keep nodes in it are carried out, and come to the
// bits and bytes of those that do not.
#include <gtest/gtest.h>

#include <string>

#include "exec/fold_node.hpp"
#include "exec/gpt_rank.hpp"
#include "nn/declared_bytes.hpp"
#include "nn/layers/layers.hpp"
#include "plan/program/proofs.hpp"

namespace garonne::exec {
namespace {

constexpr int layers = 5;

// Each layer adds to the stream what a fold makes of a product of it.
nn::Model folding_model(const Setting& setting, const nn::Declaration& declaration) {
  const nn::Rows rows{setting.batch, setting.sequence};
  const std::int64_t hidden = setting.hidden;
  const nn::TensorShape shape = {rows.count(), hidden};
  nn::ModelBuilder builder(declaration);
  const int tokens = builder.add_input("tokens", {rows.count()});
  const int targets = builder.add_input("targets", {rows.count()});
  const int table = builder.add_parameter("token_embedding", {vocabulary, hidden}, {0.1, 0});
  const int position = builder.add_parameter("position", {setting.sequence, hidden}, {0.1, 0});
  int x = builder.add_node(
      "embedding",
      nn::make_embedding("embedding", rows, hidden, vocabulary, setting.sequence, setting.dropout),
      {tokens}, {table, position}, shape);
  for (int layer = 0; layer < layers; ++layer) {
    builder.next_block();
    const std::string name = "layer." + std::to_string(layer);
    const int weight = builder.add_parameter(name + ".weight", {hidden, hidden}, {0.1, 0});
    const int bias = builder.add_parameter(name + ".bias", {hidden}, {0.1, 0});
    const int product = builder.add_node(name + ".linear", nn::make_linear(rows, hidden, hidden),
                                         {x}, {weight, bias}, shape);
    const int folded =
        builder.add_node(name + ".fold", make_fold(rows.count(), hidden), {product}, {}, shape);
    const std::string residual = name + ".residual";
    x = builder.add_node(residual, nn::make_dropout_add(residual, rows, hidden, setting.dropout),
                         {x, folded}, {}, shape);
  }
  builder.next_block();
  builder.add_loss("loss", nn::make_loss_head(rows, hidden, vocabulary), {x, targets}, {table});
  nn::Model model = builder.take();
  model.batch = setting.batch;
  model.sequence = setting.sequence;
  plan::check_model_graph(model.graph);
  return model;
}

Setting folding(Precision precision, int micro_batches) {
  Setting setting;
  setting.precision = precision;
  setting.micro_batches = micro_batches;
  setting.model = folding_model;
  // Values that outweigh what products take beside them, on any processor.
  setting.sequence = 96;
  setting.nominal_seconds = true;
  return setting;
}

// Of the folds of a Program, how many forwards for a record are of each way, and how many are made
// again.
struct Ways {
  int pinned = 0;
  int signs = 0;
  int again = 0;
};

Ways ways_of(const nn::Model& model, const plan::Program& program) {
  Ways ways;
  for (const plan::Instruction& instruction : program.instructions) {
    if (!plan::is_forward(instruction.operation)) continue;
    const auto node = static_cast<std::size_t>(instruction.node_index);
    if (model.graph.nodes[node].kind != "fold") continue;
    ways.again += instruction.recompute;
    if (instruction.operation != plan::Operation::ForwardKeep) continue;
    ++(instruction.arguments.keep_option == kept_signs ? ways.signs : ways.pinned);
  }
  return ways;
}

// The step is the one that keeps all in the first way, to the bit.
void expect_the_same_step(Rank& rank, const StepOutputs& kept, const Rank& keeping) {
  EXPECT_NO_THROW(plan::prove(rank.program(), rank.model().graph));
  const StepOutputs outputs = rank.step();
  EXPECT_EQ(outputs.loss, kept.loss);
  EXPECT_EQ(outputs.gradient_norm, kept.gradient_norm);
  EXPECT_EQ(rank.gradients(), keeping.gradients());
  expect_predicted_bytes(rank, outputs);
}

// From the smallest budget to everything kept.
TEST(RecordKind, BudgetsChooseItAndNoBitChanges) {
  for (const Precision precision : precisions) {
    Setting setting = folding(precision, 1);
    Rank keeping(setting);
    const StepOutputs kept = keeping.step();
    EXPECT_EQ(ways_of(keeping.model(), keeping.program()).pinned, layers);
    int all_pinned = 0;
    int mixed = 0;
    int all_signs = 0;
    int made_again = 0;
    for (int share = 0; share <= 16; ++share) {
      setting.budget_share = share / 16.0;
      SCOPED_TRACE(setting.text() + ", budget " + std::to_string(share) + " of 16");
      Rank rank(setting);
      expect_the_same_step(rank, kept, keeping);
      EXPECT_LE(rank.prediction().peak_bytes, rank.budget());
      const Ways ways = ways_of(rank.model(), rank.program());
      EXPECT_EQ(ways.pinned + ways.signs, layers);
      all_pinned += ways.pinned == layers;
      all_signs += ways.signs == layers;
      mixed += ways.pinned > 0 && ways.signs > 0;
      made_again += ways.again > 0;
    }
    EXPECT_GT(all_pinned, 0) << precision_name(precision);
    EXPECT_GT(mixed, 0) << precision_name(precision);
    EXPECT_GT(all_signs, 0) << precision_name(precision);
    EXPECT_GT(made_again, 0) << precision_name(precision);
  }
}

TEST(RecordKind, AnyFatesOfMicroBatchesChangeNoBit) {
  for (const Precision precision : precisions) {
    Setting setting = folding(precision, 2);
    Rank keeping(setting);
    const StepOutputs kept = keeping.step();
    Ways all;
    for (int any = 1; any <= 6; ++any) {
      setting.plan = "any " + std::to_string(any);
      SCOPED_TRACE(setting.text());
      Rank rank(setting);
      expect_the_same_step(rank, kept, keeping);
      const Ways ways = ways_of(rank.model(), rank.program());
      EXPECT_EQ(ways.pinned + ways.signs, 2 * layers);
      all.pinned += ways.pinned;
      all.signs += ways.signs;
      all.again += ways.again;
    }
    EXPECT_GT(all.pinned, 0);
    EXPECT_GT(all.signs, 0);
    EXPECT_GT(all.again, 0);
  }
}

// Refused before anything runs.
TEST(RecordKind, ABackwardTakesTheWayThatItsForwardMade) {
  int changed = 0;
  for (const char* plan : {"keep-all", "any 1"}) {
    Setting setting = folding(Precision::Float32, 1);
    setting.plan = plan;
    Rank rank(setting);
    const plan::ModelGraph& graph = rank.model().graph;
    for (std::size_t i = 0; i < rank.program().instructions.size(); ++i) {
      const plan::Instruction& instruction = rank.program().instructions[i];
      const bool takes = plan::is_backward(instruction.operation) ||
                         instruction.operation == plan::Operation::ForwardKeep;
      if (!takes || graph.nodes[static_cast<std::size_t>(instruction.node_index)].kind != "fold")
        continue;
      for (int option = 0; option <= kept_signs + 1; ++option) {
        if (option == instruction.arguments.keep_option) continue;
        plan::Program other = rank.program();
        other.instructions[i].arguments.keep_option = option;
        EXPECT_THROW(plan::prove(other, graph), plan::ReplayError)
            << plan::describe(instruction) << " by way " << option;
        ++changed;
      }
    }
  }
  EXPECT_EQ(changed, 2 * 2 * layers * 2);
}

// What is measured of a way is what the node declares of it, under the name of the way.
TEST(RecordKind, IsMeasuredAsItIsDeclared) {
  for (const Precision precision : precisions) {
    const Setting setting = folding(precision, 1);
    nn::Declaration declaration;
    declaration.precision = precision;
    declaration.threads = 2;
    nn::Model model = folding_model(setting, declaration);
    // The folds alone: products have a test of their own.
    std::erase_if(model.graph.nodes, [](const auto& node) { return node.kind != "fold"; });
    model.nodes.assign(model.graph.nodes.size(),
                       make_fold(setting.batch * setting.sequence, setting.hidden));
    plan::CostTable table;
    profile_model(Queue(), model, declaration, table, [](int, int) {});
    const plan::NodeSpec& node = model.graph.nodes.front();
    ASSERT_EQ(table.rows.size(), 2U) << "equal nodes are measured once, in each of their ways";
    EXPECT_EQ(table.rows.at(node.cost_key).pinned, "input 0");
    EXPECT_EQ(table.rows.at(node.cost_key + " kept as signs").pinned, "");
    for (int option = 0; option <= kept_signs; ++option) {
      SCOPED_TRACE(std::string(precision_name(precision)) + ", way " + std::to_string(option));
      plan::NodeSpec kept = node;
      static_cast<plan::KeepOption&>(kept) = node.keep_option(option);
      const plan::CostRow& row = table.rows.at(plan::cost_key_of(node, option));
      garonne::test::expect_declared_bytes(row, model, declaration, kept, /*bound=*/false);
      EXPECT_GT(row.forward_keep_seconds, 0);
      EXPECT_GT(row.backward_seconds, 0);
    }
    // And plans go by it.
    table.rows.at(plan::cost_key_of(node, kept_signs)).backward_seconds = 7;
    ASSERT_TRUE(plan::apply_costs(table, model.graph));
    EXPECT_EQ(node.keep_option(kept_signs).backward.seconds, 7);
    EXPECT_LT(node.backward.seconds, 7);
  }
}

}  // namespace
}  // namespace garonne::exec
