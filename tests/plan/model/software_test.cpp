// What another framework does otherwise: seconds of passes by hand, and what cluster files say.
#include "plan/model/software.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "plan/model/cluster.hpp"
#include "plan/model/cost_table.hpp"
#include "plan/model/group_links.hpp"
#include "plan/model/model_graph.hpp"
#include "plan/pipeline/stage_cut.hpp"

namespace garonne::plan {
namespace {

constexpr std::int64_t scores = 1000;

// Tokens, an embedding, `layers` of an attention and a product, and a head with 4 times the
// operations of a product.
ModelGraph text_model(int layers) {
  ModelGraph graph;
  const auto value = [&](bool loaded) {
    graph.values.push_back({"v" + std::to_string(graph.values.size()),
                            640,
                            !loaded,
                            loaded,
                            NumberType::BFloat16,
                            {320}});
    return static_cast<int>(graph.values.size()) - 1;
  };
  int x = value(true);
  const auto node = [&](const char* kind, int block, double operations) {
    NodeSpec made;
    made.name = std::string(kind) + std::to_string(graph.nodes.size());
    made.kind = kind;
    made.block = block;
    made.inputs = {x};
    made.gradient_aliases = {false};
    made.forward.floating_point_operations = made.forward_keep.floating_point_operations =
        operations;
    made.backward.floating_point_operations = 2 * operations;
    made.output = x = value(false);
    graph.nodes.push_back(made);
    return graph.nodes.size() - 1;
  };
  node("embedding", 0, 0);
  for (int layer = 1; layer <= layers; ++layer) {
    graph.nodes[node("attention", layer, 5e5)].scores = scores;
    node("linear", layer, 1e6);
  }
  graph.nodes[node("loss_head", layers + 1, 4e6)].scores = scores;
  graph.loss = x;
  return graph;
}

NominalRates rates_of_gpu() {
  NominalRates rates;
  rates.operations_per_second = 1e9;
  rates.bytes_per_second = 1e6;
  rates.issue_seconds = 1e-6;
  return rates;
}

ModelGraph timed(const Software& software, int layers = 2) {
  ModelGraph graph = text_model(layers);
  NominalRates rates = rates_of_gpu();
  rates.software = software;
  estimate_seconds(rates, graph);
  return graph;
}

const NodeSpec& first_of(const ModelGraph& graph, const std::string& kind) {
  for (const NodeSpec& node : graph.nodes) {
    if (node.kind == kind) return node;
  }
  throw std::logic_error("no " + kind);
}

TEST(Software, WritesScoresBetweenTheOperationsOfAttention) {
  const ModelGraph ours = timed({});
  const ModelGraph graph = timed({.stores_scores = true});
  const NodeSpec& fused = first_of(ours, "attention");
  const NodeSpec& stored = first_of(graph, "attention");
  // Two products over all scores in place of half of them: as many operations again.
  const double product = 5e5 / 1e9;
  // 6 times 2 bytes forward, 9 times 2 bytes backward, and a mask of a byte each way.
  EXPECT_NEAR(stored.forward.seconds - fused.forward.seconds, product + 13 * scores / 1e6, 1e-9);
  EXPECT_NEAR(stored.forward_keep.seconds - fused.forward_keep.seconds, product + 13 * scores / 1e6,
              1e-9);
  EXPECT_NEAR(stored.backward.seconds - fused.backward.seconds,
              (2 * 4.0 / 5 - 1) * 2 * product + 19 * scores / 1e6, 1e-9);
  for (const char* kind : {"embedding", "linear", "loss_head"})
    EXPECT_EQ(first_of(graph, kind).forward.seconds, first_of(ours, kind).forward.seconds);
}

TEST(Software, MakesLogitsFloat32AndPassesOverThem) {
  const ModelGraph ours = timed({});
  const ModelGraph graph = timed({.unfused_loss = true});
  const NodeSpec& fused = first_of(ours, "loss_head");
  const NodeSpec& unfused = first_of(graph, "loss_head");
  EXPECT_NEAR(unfused.forward.seconds - fused.forward.seconds, (2 + 9 * 4) * scores / 1e6, 1e-9);
  EXPECT_NEAR(unfused.backward.seconds - fused.backward.seconds, (3 * 4 + 2) * scores / 1e6, 1e-9);
  EXPECT_EQ(first_of(graph, "attention").forward.seconds,
            first_of(ours, "attention").forward.seconds);
}

TEST(Software, MakesNormsFloat32AndPassesOverThem) {
  constexpr double elements = 200;
  const auto graph_of = [&](const char* kind, NumberType type, bool unfused) {
    ModelGraph graph = text_model(1);
    for (NodeSpec& node : graph.nodes)
      if (node.kind == "linear") node.kind = kind;
    for (ValueSpec& value : graph.values) {
      value.type = type;
      value.bytes = static_cast<std::int64_t>(elements) * number_bytes(type);
    }
    NominalRates rates = rates_of_gpu();
    rates.software.unfused_norms = unfused;
    estimate_seconds(rates, graph);
    return graph;
  };
  for (const auto& [kind, passes] :
       {std::pair{"layer_norm", 12}, {"instance_norm", 12}, {"rms_norm", 7}}) {
    for (const auto& [type, converting] :
         {std::pair{NumberType::BFloat16, 2 * (2 + 4)}, {NumberType::Float32, 0}}) {
      const ModelGraph fused = graph_of(kind, type, false);
      const ModelGraph unfused = graph_of(kind, type, true);
      const auto number = static_cast<double>(number_bytes(type));
      const double more = elements * (passes * 4 + converting - 2 * number) / 1e6;
      EXPECT_NEAR(first_of(unfused, kind).forward.seconds - first_of(fused, kind).forward.seconds,
                  more, 1e-9);
      EXPECT_NEAR(
          first_of(unfused, kind).forward_keep.seconds - first_of(fused, kind).forward_keep.seconds,
          more, 1e-9);
      EXPECT_NEAR(first_of(unfused, kind).backward.seconds - first_of(fused, kind).backward.seconds,
                  2 * more, 1e-9);
      for (const char* other : {"embedding", "attention", "loss_head"})
        EXPECT_EQ(first_of(unfused, other).backward.seconds,
                  first_of(fused, other).backward.seconds);
    }
  }
}

TEST(Software, IssuesBlocksInTheSameTimeWhateverTheirKernels) {
  const ModelGraph graph = timed({.block_issue_seconds = 3e-3});
  std::vector<double> forward(static_cast<std::size_t>(graph.blocks()), 0);
  std::vector<double> backward = forward;
  for (const NodeSpec& node : graph.nodes) {
    forward[static_cast<std::size_t>(node.block)] += node.forward.issue_seconds;
    backward[static_cast<std::size_t>(node.block)] += node.backward.issue_seconds;
  }
  for (const double seconds : forward) EXPECT_NEAR(seconds, 3e-3, 1e-12);
  // Of a backward, a quarter.
  for (const double seconds : backward) EXPECT_NEAR(seconds, 0.75e-3, 1e-12);
  EXPECT_EQ(first_of(timed({}), "linear").forward.issue_seconds, 1e-6);
}

TEST(Software, AddsGradientsOfWeightsByThemselves) {
  constexpr std::int64_t elements = 500;
  const auto backward_of = [&](GradientSums sums, bool splits) {
    ModelGraph graph = text_model(1);
    graph.parameters.push_back({"weight", {elements}, elements});
    for (NodeSpec& node : graph.nodes) {
      if (node.kind != "linear") continue;
      node.parameters = {0};
      node.splits_backward = splits;
    }
    NominalRates rates = rates_of_gpu();
    rates.software.gradient_sums = sums;
    estimate_seconds(rates, graph);
    const NodeSpec& node = first_of(graph, "linear");
    EXPECT_EQ(node.forward.seconds, first_of(timed({}), "linear").forward.seconds);
    return std::pair{node.backward.seconds, node.backward_weight.seconds};
  };
  // Two bytes that were made, and a sum that is read and written.
  for (const auto& [sums, bytes] :
       {std::pair{GradientSums::Compute, 2 + 2 * 2}, std::pair{GradientSums::Float32, 2 + 2 * 4}}) {
    const double seconds = static_cast<double>(bytes * elements) / 1e6;
    EXPECT_NEAR(backward_of(sums, false).first - backward_of(GradientSums::Fused, false).first,
                seconds, 1e-9);
    EXPECT_EQ(backward_of(sums, true).first, backward_of(GradientSums::Fused, true).first);
    EXPECT_NEAR(backward_of(sums, true).second - backward_of(GradientSums::Fused, true).second,
                seconds, 1e-9);
  }
}

// A sum in the forward, and one in the backward of another node.
ModelGraph on_tensor_ranks() {
  ModelGraph graph = text_model(2);
  NodeCollective sum;
  sum.kind = "all-reduce";
  sum.bytes = 640;
  NodeSpec& forward = graph.nodes[1];
  forward.kind = "all_reduce";
  forward.forward_collective = sum;
  graph.nodes[3].kind = "identity";
  graph.nodes[3].backward_collective = sum;
  return graph;
}

TEST(Software, IssuesCollectivesBesideBlocks) {
  ModelGraph graph = on_tensor_ranks();
  NominalRates rates = rates_of_gpu();
  rates.software = {.block_issue_seconds = 3e-3, .collective_issue_seconds = 1e-3};
  estimate_seconds(rates, graph);
  EXPECT_EQ(graph.nodes[1].forward.issue_seconds, 1e-3);
  EXPECT_EQ(graph.nodes[1].forward_keep.issue_seconds, 1e-3);
  EXPECT_EQ(graph.nodes[1].backward.issue_seconds, 0);
  EXPECT_EQ(graph.nodes[3].forward.issue_seconds, 0);
  EXPECT_EQ(graph.nodes[3].backward.issue_seconds, 1e-3);
  // The one other node of each of the two blocks.
  EXPECT_EQ(graph.nodes[2].forward.issue_seconds, 3e-3);
  EXPECT_EQ(graph.nodes[4].backward.issue_seconds, 0.75e-3);
  // The slowest of eight hosts, by their doublings.
  set_collective_seconds(8, GroupLink{Link{1e-5, 1e6}, false}, graph);
  EXPECT_EQ(graph.nodes[1].forward.issue_seconds, 3e-3);
  EXPECT_EQ(graph.nodes[1].forward_keep.issue_seconds, 3e-3);
  EXPECT_EQ(graph.nodes[3].backward.issue_seconds, 3e-3);
}

TEST(Software, ComputesNothingWhileItIssues) {
  ModelGraph graph = on_tensor_ranks();
  NominalRates rates = rates_of_gpu();
  rates.software = {.block_issue_seconds = 3e-3, .collective_issue_seconds = 1e-3};
  estimate_seconds(rates, graph);
  set_collective_seconds(2, GroupLink{Link{1e-5, 1e6}, false}, graph);
  ModelGraph one_by_one = graph;
  wait_for_operations(one_by_one);
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    for (const auto pass : {&NodeSpec::forward_keep, &NodeSpec::backward}) {
      const OperationCost& before = graph.nodes[n].*pass;
      const OperationCost& after = one_by_one.nodes[n].*pass;
      EXPECT_DOUBLE_EQ(after.seconds, before.seconds + before.issue_seconds);
      EXPECT_EQ(after.issue_seconds, 0);
    }
  }
  EXPECT_GT(graph.nodes[1].forward.issue_seconds, 0);
}

TEST(Software, DealsOutEquallyManyBlocks) {
  const ModelGraph graph = timed({}, 8);
  const auto blocks_of = [&](const ModelGraph& cut_by) {
    std::vector<int> blocks;
    for (const NodeRange& part : balanced_parts(cut_by, 4)) {
      blocks.push_back(graph.nodes[static_cast<std::size_t>(part.last) - 1].block -
                       graph.nodes[static_cast<std::size_t>(part.first)].block + 1);
    }
    return blocks;
  };
  // Beside two layers each: the embedding with the first, and the head with the last.
  EXPECT_EQ(blocks_of(with_equal_blocks(graph, false, 4)), (std::vector<int>{3, 2, 2, 3}));
  EXPECT_LT(blocks_of(graph).back(), 3);
  // Ten of them, where these are two.
  EXPECT_EQ(blocks_of(with_equal_blocks(graph, true, 4)), (std::vector<int>{3, 3, 3, 1}));

  EXPECT_EQ(equal_block_seconds(6, false, 2), (std::vector<double>{0, 1, 1, 1, 1, 0}));
  EXPECT_EQ(equal_block_seconds(6, true, 3), (std::vector<double>{1, 1, 1, 1, 1, 1}));
  // 13 over 4: 4, 4, 4 and the one that is left.
  EXPECT_EQ(equal_block_seconds(15, false, 4).back(), 3);
  // No more parts than blocks can be empty.
  EXPECT_EQ(equal_block_seconds(7, false, 4).back(), 1);
}

constexpr const char* cluster_text = R"(version = 2
devices_per_node = 8
nodes = 1
[device]
memory = "80 GB"
bytes_per_second = 2e12
[device.flops]
bfloat16 = 3e14
[link.inside_node]
latency_seconds = 1e-6
bytes_per_second = 3e11
[link.between_nodes]
latency_seconds = 1e-6
bytes_per_second = 1e11
)";

TEST(Software, IsATableOfClusterFiles) {
  EXPECT_EQ(parse_cluster(cluster_text, "c").software, Software());
  const Cluster cluster = parse_cluster(std::string(cluster_text) + R"([software]
name = "a framework of 2021"
attention = "stored"
loss = "unfused"
norms = "unfused"
stages = "all-blocks"
gradient_sums = "float32"
host = "blocks"
block_issue_seconds = 1e-3
collective_issue_seconds = 1e-4
)",
                                        "c");
  const Software expected{.name = "a framework of 2021",
                          .stores_scores = true,
                          .unfused_loss = true,
                          .unfused_norms = true,
                          .balances_stages = false,
                          .counts_ends = true,
                          .gradient_sums = GradientSums::Float32,
                          .block_issue_seconds = 1e-3,
                          .collective_issue_seconds = 1e-4,
                          .host_waits = true,
                          .waits_for_operations = true};
  EXPECT_EQ(cluster.software, expected);
  EXPECT_EQ(parse_cluster(to_toml(cluster), "again").software, expected);
  EXPECT_EQ(rates_of(cluster, Precision::BFloat16).software, expected);
  const auto software_of = [&](const std::string& lines) {
    const Cluster read = parse_cluster(std::string(cluster_text) + "[software]\n" + lines, "c");
    EXPECT_EQ(parse_cluster(to_toml(read), "again").software, read.software);
    return read.software;
  };
  EXPECT_EQ(software_of("stages = \"blocks\"\nhost = \"waits\"\n"),
            (Software{.balances_stages = false, .host_waits = true}));
  EXPECT_EQ(software_of("overlap_reductions = false\n"), (Software{.overlaps_reductions = false}));
  EXPECT_EQ(software_of("overlap_collectives = false\noverlap_copies = true\n"),
            (Software{.overlaps_collectives = false}));
  EXPECT_EQ(software_of("overlap_copies = false\n"), (Software{.overlaps_copies = false}));
  EXPECT_EQ(software_of("gradient_sums = \"compute\"\n"),
            (Software{.gradient_sums = GradientSums::Compute}));
}

TEST(Software, IsRefusedByKeyWhereItIsNone) {
  const auto refused = [](const std::string& line, const std::string& key) {
    try {
      parse_cluster(std::string(cluster_text) + "[software]\n" + line + "\n", "c");
    } catch (const ConfigError& error) {
      return std::string(error.what()).find(key) != std::string::npos;
    }
    return false;
  };
  EXPECT_TRUE(refused("attention = \"flash\"", "one of \"fused\", \"stored\""));
  EXPECT_TRUE(refused("loss = true", "software.loss"));
  EXPECT_TRUE(refused("norms = \"apex\"", "one of \"fused\", \"unfused\""));
  EXPECT_TRUE(refused("overlap_copies = \"no\"", "software.overlap_copies"));
  EXPECT_TRUE(refused("stages = \"layers\"", "\"seconds\", \"blocks\", \"all-blocks\""));
  EXPECT_TRUE(refused("gradient_sums = \"float64\"", "\"compute\", \"float32\""));
  EXPECT_TRUE(refused("host = \"behind\"", "\"ahead\", \"waits\", \"blocks\""));
  EXPECT_TRUE(refused("collective_issue_seconds = -1", "software.collective_issue_seconds"));
  EXPECT_TRUE(refused("block_issue_seconds = -1", "software.block_issue_seconds"));
  EXPECT_TRUE(refused("atention = \"stored\"", "software.attention"));
}

}  // namespace
}  // namespace garonne::plan
