// The cost table as a file, and what it does to a model.
#include "plan/model/cost_table.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/error.hpp"
#include "plan/step/graphs.hpp"

namespace garonne::plan::test {
namespace {

CostTable table() {
  CostTable table;
  table.machine = "some processor, 2 threads";
  table.product_roof = 4.5e11;
  table.products = {{"forward float32 8x8x8", "MKL"}};
  CostRow row;
  row.forward_seconds = 0.1;
  row.forward_keep_seconds = 0.2;
  row.backward_seconds = 1.0 / 3.0;
  row.value_bytes = 1;
  row.private_bytes = 2;
  row.forward_transient_bytes = 3;
  row.forward_keep_transient_bytes = 4;
  row.backward_transient_bytes = std::int64_t{1} << 40;
  row.in_place_transient_bytes = 6;
  row.pinned = "input 0, output";
  row.forward_issue_seconds = 1e-6;
  row.forward_keep_issue_seconds = 2e-6;
  row.backward_issue_seconds = 3e-6;
  row.backward_weight_issue_seconds = 4e-6;
  table.rows["node.0"] = row;
  table.rows["node.1 \"quoted\""] = CostRow();
  table.disks["/scratch"] = {0, 1e-4, 2e9, 1.5e9, false};
  return table;
}

TEST(CostTable, ReadAgainIsEqual) {
  const CostTable before = table();
  const std::string text = to_json(before).dump();
  const CostTable after = cost_table_from_json(nlohmann::json::parse(text), "costs.json");
  EXPECT_EQ(after.machine, before.machine);
  EXPECT_EQ(after.product_roof, before.product_roof);
  EXPECT_EQ(after.products, before.products);
  ASSERT_EQ(after.rows.size(), before.rows.size());
  const CostRow& row = after.rows.at("node.0");
  EXPECT_EQ(row.forward_seconds, 0.1);
  EXPECT_EQ(row.forward_keep_seconds, 0.2);
  EXPECT_EQ(row.backward_seconds, 1.0 / 3.0);
  EXPECT_EQ(row.value_bytes, 1);
  EXPECT_EQ(row.private_bytes, 2);
  EXPECT_EQ(row.forward_transient_bytes, 3);
  EXPECT_EQ(row.forward_keep_transient_bytes, 4);
  EXPECT_EQ(row.backward_transient_bytes, std::int64_t{1} << 40);
  EXPECT_EQ(row.in_place_transient_bytes, 6);
  EXPECT_EQ(row.pinned, "input 0, output");
  EXPECT_EQ(row.forward_issue_seconds, 1e-6);
  EXPECT_EQ(row.forward_keep_issue_seconds, 2e-6);
  EXPECT_EQ(row.backward_issue_seconds, 3e-6);
  EXPECT_EQ(row.backward_weight_issue_seconds, 4e-6);
  EXPECT_EQ(after.disks, before.disks);
  EXPECT_EQ(to_json(after).dump(), text);
}

// Tables of processors are what they were before there were issue seconds.
TEST(CostTable, RowsWithoutIssueSecondsDoNotNameThem) {
  const nlohmann::json json = nlohmann::json::parse(to_json(table()).dump());
  EXPECT_TRUE(json["rows"]["node.0"].contains("backward_issue_seconds"));
  const auto& plain = json["rows"]["node.1 \"quoted\""];
  for (const auto& [key, value] : plain.items()) EXPECT_EQ(key.find("issue"), std::string::npos);
  EXPECT_EQ(
      cost_table_from_json(json, "costs.json").rows.at("node.1 \"quoted\"").forward_issue_seconds,
      0);
}

TEST(CostTable, RefusesWhatItDoesNotKnow) {
  const auto refused = [](const std::string& part,
                          const std::function<void(nlohmann::json&)>& breaks) {
    nlohmann::json json = nlohmann::json::parse(to_json(table()).dump());
    breaks(json);
    try {
      cost_table_from_json(json, "costs.json");
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find("costs.json"), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
      return;
    }
    ADD_FAILURE() << "read; expected: " << part;
  };
  refused("garonne.costs", [](auto& json) { json["format"] = "garonne.program"; });
  refused("version", [](auto& json) { json["version"] = 1; });
  refused("machine", [](auto& json) { json.erase("machine"); });
  refused("rows", [](auto& json) { json.erase("rows"); });
  refused("backward_seconds", [](auto& json) { json["rows"]["node.0"].erase("backward_seconds"); });
  refused("products.forward float32 8x8x8",
          [](auto& json) { json["products"]["forward float32 8x8x8"] = 7; });
  refused("product_roof", [](auto& json) { json["product_roof"] = -1.0; });
  refused("rows", [](auto& json) { json["rows"] = nlohmann::json::array(); });
  refused("costs.json", [](auto& json) { json = nlohmann::json::array(); });
  refused("costs.json", [](auto& json) { json = nullptr; });
}

// Of every number of a row: another type, less than nothing, and more than can be.
TEST(CostTable, RefusesRowsThatCannotBe) {
  const nlohmann::json good = nlohmann::json::parse(to_json(table()).dump());
  for (const auto& [key, value] : good["rows"]["node.0"].items()) {
    std::vector<nlohmann::json> wrong = {nullptr, true, nlohmann::json::array({1}),
                                         nlohmann::json::object()};
    if (key == "pinned") {
      wrong.emplace_back(1);
    } else {
      for (const auto& bad : {nlohmann::json("many"), nlohmann::json(-1), nlohmann::json(1e300),
                              nlohmann::json(std::uint64_t{1} << 63)})
        wrong.push_back(bad);
    }
    for (const auto& bad : wrong) {
      nlohmann::json json = good;
      json["rows"]["node.0"][key] = bad;
      const std::string path = "costs.json: rows.node.0." + key;
      try {
        cost_table_from_json(json, "costs.json");
        ADD_FAILURE() << "read: " << key << " = " << bad;
      } catch (const ConfigError& error) {
        EXPECT_EQ(error.key(), path) << bad;
      }
      try {
        cost_table_from_json(json, "costs.json", FileOwner::Run);
        ADD_FAILURE() << "read: " << key << " = " << bad;
      } catch (const IoError& error) {
        EXPECT_EQ(error.path(), "costs.json");
        EXPECT_NE(std::string(error.what()).find(path.substr(12)), std::string::npos);
      }
    }
  }
}

TEST(CostTable, AppliedByCostKey) {
  ModelGraph graph = chain(2, 1);
  const ModelGraph before = graph;
  CostTable partial;
  CostRow row;
  row.forward_seconds = 10;
  row.forward_keep_seconds = 11;
  row.backward_seconds = 12;
  row.value_bytes = 1;
  row.private_bytes = 2;
  row.forward_transient_bytes = 3;
  row.forward_keep_transient_bytes = 4;
  row.backward_transient_bytes = 5;
  row.forward_issue_seconds = 6;
  row.forward_keep_issue_seconds = 7;
  row.backward_issue_seconds = 8;
  partial.rows["node.1"] = row;
  EXPECT_FALSE(apply_costs(partial, graph));
  EXPECT_FALSE(graph.nodes[0].measured);
  EXPECT_EQ(graph.nodes[0].forward.seconds, before.nodes[0].forward.seconds);
  EXPECT_TRUE(graph.nodes[1].measured);
  EXPECT_EQ(graph.nodes[1].forward.seconds, 10);
  EXPECT_EQ(graph.nodes[1].forward_keep.seconds, 11);
  EXPECT_EQ(graph.nodes[1].backward.seconds, 12);
  EXPECT_EQ(graph.nodes[1].forward.issue_seconds, 6);
  EXPECT_EQ(graph.nodes[1].forward_keep.issue_seconds, 7);
  EXPECT_EQ(graph.nodes[1].backward.issue_seconds, 8);
  // Measured transients replace the declared bounds; what is kept and made stays as declared.
  EXPECT_EQ(graph.nodes[1].forward.transient_bytes, 3);
  EXPECT_EQ(graph.nodes[1].forward_keep.transient_bytes, 4);
  EXPECT_EQ(graph.nodes[1].backward.transient_bytes, 5);
  EXPECT_EQ(graph.nodes[0].backward.transient_bytes, before.nodes[0].backward.transient_bytes);
  EXPECT_EQ(graph.nodes[1].private_slot_bytes, before.nodes[1].private_slot_bytes);
  // Nodes with equal keys share their row.
  for (auto& node : graph.nodes) node.cost_key = "node.1";
  EXPECT_TRUE(apply_costs(partial, graph));
  for (const auto& node : graph.nodes) EXPECT_EQ(node.backward.seconds, 12);
}

TEST(CostTable, HasARowForEachWayToBeKept) {
  ModelGraph graph = chain(1, 1);
  KeepOption packed;
  packed.name = "packed";
  packed.backward.floating_point_operations = 1e10;
  graph.nodes[0].further_options = {packed};
  EXPECT_EQ(cost_key_of(graph.nodes[0], 0), "node.0");
  EXPECT_EQ(cost_key_of(graph.nodes[0], 1), "node.0 kept as packed");
  estimate_seconds({}, graph);
  EXPECT_GT(graph.nodes[0].keep_option(1).backward.seconds, graph.nodes[0].backward.seconds);
  const ModelGraph before = graph;
  CostTable table;
  table.rows["node.0"].backward_seconds = 3;
  table.rows["loss"].backward_seconds = 4;
  EXPECT_FALSE(apply_costs(table, graph)) << "one of its ways was not measured";
  EXPECT_EQ(graph.nodes[0].backward.seconds, before.nodes[0].backward.seconds);
  CostRow& row = table.rows["node.0 kept as packed"];
  row.forward_keep_seconds = 5;
  row.backward_seconds = 6;
  row.backward_transient_bytes = 128;
  EXPECT_TRUE(apply_costs(table, graph));
  EXPECT_EQ(graph.nodes[0].backward.seconds, 3);
  EXPECT_EQ(graph.nodes[0].keep_option(1).forward_keep.seconds, 5);
  EXPECT_EQ(graph.nodes[0].keep_option(1).backward.seconds, 6);
  EXPECT_EQ(graph.nodes[0].keep_option(1).backward.transient_bytes, 128);
  EXPECT_EQ(graph.nodes[0].keep_option(1).private_slot_bytes,
            before.nodes[0].keep_option(1).private_slot_bytes);
}

TEST(CostTable, EstimatesHaveAFloorForEachKernel) {
  ModelGraph graph = chain(2, 1);
  estimate_seconds({1e12, 1e12}, graph);
  const ModelGraph without = graph;
  graph.nodes[0].backward.kernels = 3;
  graph.nodes[1].forward.floating_point_operations = 1e12;
  graph.nodes[1].forward.kernels = 0;
  NominalRates rates{1e12, 1e12, 3e-6, 5e-6};
  estimate_seconds(rates, graph);
  EXPECT_LT(without.nodes[0].forward.seconds, 1e-6);
  EXPECT_EQ(without.nodes[0].forward.issue_seconds, 0);
  EXPECT_DOUBLE_EQ(graph.nodes[0].forward.seconds, 3e-6);
  EXPECT_DOUBLE_EQ(graph.nodes[0].forward.issue_seconds, 5e-6);
  EXPECT_DOUBLE_EQ(graph.nodes[0].backward.seconds, 9e-6);
  EXPECT_DOUBLE_EQ(graph.nodes[0].backward.issue_seconds, 15e-6);
  EXPECT_NEAR(graph.nodes[1].forward.seconds, 1, 1e-6);
  EXPECT_EQ(graph.nodes[1].forward.issue_seconds, 0);
}

TEST(CostTable, EstimatesTakeTheShareThatAProductReaches) {
  ModelGraph graph = chain(1, 1);
  OperationCost& cost = graph.nodes[0].forward;
  cost.floating_point_operations = 1e12;
  cost.product = {1024, 1024, 1024};
  NominalRates rates{1e12, 1e18};  // half of a peak of 2e12
  rates.efficiency = 0.5;
  rates.products.points = {{{1024, 1024, 1024}, 0.25}, {{4096, 4096, 4096}, 0.75}};
  estimate_seconds(rates, graph);
  EXPECT_NEAR(cost.seconds, 2, 1e-6);
  cost.product = {2048, 2048, 2048};  // as far from either
  estimate_seconds(rates, graph);
  EXPECT_NEAR(cost.seconds, 1, 1e-6);
  // A size that is no multiple; nothing else of the model is a product.
  rates.products.alignment = 8;
  rates.products.unaligned = 0.5;
  cost.product = {4096, 4095, 4096};
  estimate_seconds(rates, graph);
  EXPECT_NEAR(cost.seconds, 1 / 1.5 / 0.5, 1e-3);
  cost.product = {};
  estimate_seconds(rates, graph);
  EXPECT_NEAR(cost.seconds, 1, 1e-6);
}

TEST(CostTable, MergingKeepsWhatIsShorter) {
  CostTable table;
  table.rows["a"].forward_seconds = 2;
  table.rows["a"].backward_seconds = 3;
  table.product_roof = 5;
  CostTable again;
  again.rows["a"].forward_seconds = 1;
  again.rows["a"].backward_seconds = 4;
  again.rows["b"].forward_seconds = 7;
  again.product_roof = 4;
  merge_shorter(again, table);
  EXPECT_EQ(table.rows["a"].forward_seconds, 1);
  EXPECT_EQ(table.rows["a"].backward_seconds, 3);
  EXPECT_EQ(table.rows["b"].forward_seconds, 7);
  EXPECT_EQ(table.product_roof, 5);
}

}  // namespace
}  // namespace garonne::plan::test
