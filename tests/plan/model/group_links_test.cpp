#include "plan/model/group_links.hpp"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "base/error.hpp"

namespace garonne::plan {
namespace {

// Nodes of four: 100 GB/s and 1 µs inside, 20 GB/s and 5 µs to others.
Cluster nodes_of_four(bool shared) {
  Cluster cluster;
  cluster.devices_per_node = 4;
  cluster.nodes = 1 << 20;
  cluster.inside_node = {1e-6, 100e9};
  cluster.between_nodes = {5e-6, 20e9};
  cluster.shared_by_node = shared;
  return cluster;
}

TEST(GroupLinks, CollectivesCostWhatARingDoes) {
  const Link link{1e-6, 1e9};
  // 8 members, 80 MB: seven steps of 10 MB and a microsecond, twice for a sum that all have.
  EXPECT_DOUBLE_EQ(collective_seconds("reduce-scatter", 80'000'000, 8, link), 7 * 0.010001);
  EXPECT_DOUBLE_EQ(collective_seconds("all-gather", 80'000'000, 8, link), 7 * 0.010001);
  EXPECT_DOUBLE_EQ(collective_seconds("all-reduce", 80'000'000, 8, link), 14 * 0.010001);
  EXPECT_EQ(collective_seconds("all-reduce", 80'000'000, 1, link), 0);
  EXPECT_DOUBLE_EQ(message_seconds(3'000'000, link), 0.003001);
  EXPECT_DOUBLE_EQ(collective_traffic("all-reduce", 80, 4, {link}).inside, 120);
  EXPECT_DOUBLE_EQ(collective_traffic("all-gather", 80, 4, {link}).inside, 60);
  EXPECT_EQ(collective_traffic("all-gather", 80, 4, {link}).between, 0);
  EXPECT_EQ(collective_traffic("all-gather", 80, 1, {link}).inside, 0);
}

TEST(GroupLinks, ACurveSaysWhatSizesReach) {
  Link link{1e-6, 100e9, {{{1e4, 1e9}, {1e6, 50e9}, {1e8, 100e9}}}};
  // 10 µs up to the first point, 20 µs at the second, a millisecond at the last.
  EXPECT_DOUBLE_EQ(message_seconds(64, link), 11e-6);
  EXPECT_DOUBLE_EQ(message_seconds(1'000'000, link), 21e-6);
  EXPECT_DOUBLE_EQ(message_seconds(505'000, link), 16e-6);  // half-way
  EXPECT_DOUBLE_EQ(message_seconds(200'000'000, link), 2.001e-3);
  // The rate is that of the whole buffer; each of four members passes on three quarters of it.
  EXPECT_DOUBLE_EQ(collective_seconds("all-gather", 1'000'000, 4, link), 3e-6 + 0.75 * 20e-6);
  EXPECT_DOUBLE_EQ(collective_seconds("all-reduce", 1'000'000, 4, link), 6e-6 + 1.5 * 20e-6);
  EXPECT_EQ(collective_seconds("all-reduce", 1'000'000, 1, link), 0);
  Cluster cluster = nodes_of_four(true);
  cluster.between_nodes = link;
  EXPECT_EQ(GridLinks(cluster, Grid({2, 1, 4})).data().link,
            (Link{1e-6, 25e9, {{{1e4, 0.25e9}, {1e6, 12.5e9}, {1e8, 25e9}}}}));
}

TEST(GroupLinks, CurvesOfOtherFormsAreRefused) {
  const auto refusal = [](RateCurve curve) -> std::string {
    const char* text = curve.refusal();
    return text == nullptr ? "" : text;
  };
  EXPECT_EQ(refusal({}), "");
  EXPECT_EQ(refusal({{{1, 1}, {2, 1}, {3, 1.5}}}), "");
  EXPECT_NE(refusal({{{1, 1}, {1, 2}}}).find("ascend"), std::string::npos);
  EXPECT_NE(refusal({{{1, 2}, {2, 1}}}).find("falls"), std::string::npos);
  EXPECT_NE(refusal({{{1, 1}, {2, 3}}}).find("less time"), std::string::npos);
  EXPECT_NE(refusal({{{0, 1}}}).find("above 0"), std::string::npos);
}

// On any curve that is not refused nothing takes longer than its parts one by one, and no part
// longer than the whole: bounds of searches stand on both.
TEST(GroupLinks, PartsOfATransferAreNoFaster) {
  std::mt19937 random(11);
  const auto share = [&] { return std::uniform_real_distribution<double>(0, 1)(random); };
  for (int round = 0; round < 200; ++round) {
    RateCurve curve;
    RatePoint point{1 + 1e4 * share(), 1e6 * (1 + share())};
    for (int k = 0; k < 5; ++k) {
      curve.points.push_back(point);
      const double growth = 1 + 9 * share();
      point = {point.bytes * growth, point.bytes_per_second * (1 + share() * (growth - 1))};
    }
    ASSERT_EQ(curve.refusal(), nullptr);
    for (int k = 0; k < 20; ++k) {
      const double a = 1e6 * share() * share();
      const double b = 1e6 * share() * share();
      EXPECT_LE(curve.seconds(a + b), (curve.seconds(a) + curve.seconds(b)) * (1 + 1e-12));
      EXPECT_LE(curve.seconds(a), curve.seconds(a + b) * (1 + 1e-12));
    }
  }
}

TEST(GroupLinks, TensorPeersAreNeighbours) {
  const GridLinks links(nodes_of_four(false), Grid({2, 2, 2}));
  // Tensor groups {0, 1}, data groups {0, 2} and {1, 3}, stages {0..3} and {4..7}.
  EXPECT_FALSE(links.tensor().between_nodes);
  EXPECT_FALSE(links.data().between_nodes);
  EXPECT_TRUE(links.stages(0, 1).between_nodes);
  EXPECT_TRUE(links.world().between_nodes);
  EXPECT_EQ(links.data().link, (Link{1e-6, 100e9}));
  EXPECT_EQ(links.stages(0, 1).link, (Link{5e-6, 20e9}));
  const StepLinks of_stage = links.of_stage(0, {0, 1});
  EXPECT_EQ(of_stage.to_stage(1), (Link{5e-6, 20e9}));
  EXPECT_EQ(of_stage.tied.link, (Link{5e-6, 20e9}));
  EXPECT_EQ(of_stage.of_group(GroupAxis::Tensor).link, (Link{1e-6, 100e9}));
  EXPECT_THROW(of_stage.of_group(GroupAxis::Pipeline), InternalError);
}

TEST(GroupLinks, GroupsThatLeaveANodeShareWhatItHas) {
  // Tensor groups of eight: one leaves each node. Data groups of two, four leave each node.
  const GridLinks wide(nodes_of_four(true), Grid({1, 1, 8}));
  EXPECT_EQ(wide.tensor().link, (Link{5e-6, 20e9}));
  const GridLinks links(nodes_of_four(true), Grid({2, 1, 4}));
  EXPECT_FALSE(links.tensor().between_nodes);
  EXPECT_EQ(links.data().link, (Link{5e-6, 5e9}));
  // With two members of each data group on a node there are two of them.
  const GridLinks narrow(nodes_of_four(true), Grid({4, 1, 2}));
  EXPECT_EQ(narrow.data().link, (Link{5e-6, 10e9}));
  // Four messages leave a node at once, none of them where stages share it.
  EXPECT_EQ(GridLinks(nodes_of_four(true), Grid({2, 2, 2})).stages(0, 1).link, (Link{5e-6, 5e9}));
  EXPECT_FALSE(GridLinks(nodes_of_four(true), Grid({1, 2, 2})).stages(0, 1).between_nodes);
}

// A DGX as config/clusters/dgx_h200.toml has it, in round numbers: eight GPUs with 400 GB/s and a
// microsecond among them, a port of 50 GB/s and 5 µs for each.
Cluster nodes_of_eight_gpus(bool shared) {
  Cluster cluster;
  cluster.devices_per_node = 8;
  cluster.nodes = 8;
  cluster.inside_node = {1e-6, 400e9};
  cluster.between_nodes = {5e-6, 50e9};
  cluster.shared_by_node = shared;
  cluster.two_level_collectives = true;
  return cluster;
}

constexpr std::int64_t whole_buffer = 640'000'000;

double world_seconds(const Cluster& cluster, const char* kind, int ranks) {
  return collective_seconds(kind, whole_buffer, ranks,
                            GridLinks(cluster, Grid({ranks, 1, 1})).data());
}

TEST(GroupLinks, SumsOfSeveralNodesGoWithinThemFirst) {
  const Cluster cluster = nodes_of_eight_gpus(false);
  // Inside: seven steps of 80 MB at 400 GB/s, 0.2 ms and a microsecond each.
  const double inside = 7 * 0.201e-3;
  EXPECT_DOUBLE_EQ(world_seconds(cluster, "reduce-scatter", 8), inside);
  EXPECT_DOUBLE_EQ(world_seconds(cluster, "all-reduce", 8), 2 * inside);
  // Two nodes: half of the 80 MB of a GPU to the other node, 0.8 ms at 50 GB/s.
  EXPECT_DOUBLE_EQ(world_seconds(cluster, "reduce-scatter", 16), inside + 0.805e-3);
  EXPECT_DOUBLE_EQ(world_seconds(cluster, "all-gather", 16), inside + 0.805e-3);
  EXPECT_DOUBLE_EQ(world_seconds(cluster, "all-reduce", 16), 2 * (inside + 0.805e-3));
  // Eight nodes: seven times 10 MB, 0.2 ms.
  EXPECT_DOUBLE_EQ(world_seconds(cluster, "reduce-scatter", 64), inside + 7 * 0.205e-3);
  EXPECT_DOUBLE_EQ(world_seconds(cluster, "all-reduce", 64), 2 * (inside + 7 * 0.205e-3));
}

// Two nodes of four, 80 bytes: inside three parts of 20 go to a neighbour; between nodes each rank
// has 20 bytes and its partner wants half of them.
TEST(GroupLinks, BytesAreSentOverTheLinksThatTakeTheSeconds) {
  Cluster cluster = nodes_of_four(false);
  cluster.two_level_collectives = true;
  const GridLinks links(cluster, Grid({8, 1, 1}));
  const LinkTraffic gathered = collective_traffic("all-gather", 80, 8, links.data());
  EXPECT_DOUBLE_EQ(gathered.inside, 3 * 20);
  EXPECT_DOUBLE_EQ(gathered.between, 10);
  const LinkTraffic summed = collective_traffic("all-reduce", 80, 8, links.data());
  EXPECT_DOUBLE_EQ(summed.inside, 2 * 3 * 20);
  EXPECT_DOUBLE_EQ(summed.between, 2 * 10);
  // On one level a ring of all eight leaves the node with seven eighths.
  cluster.two_level_collectives = false;
  const GridLinks ring(cluster, Grid({8, 1, 1}));
  EXPECT_EQ(collective_traffic("all-gather", 80, 8, ring.data()).inside, 0);
  EXPECT_DOUBLE_EQ(collective_traffic("all-gather", 80, 8, ring.data()).between, 70);
  EXPECT_DOUBLE_EQ(collective_traffic("all-gather", 80, 4, GroupLink{cluster.inside_node}).inside,
                   60);
}

TEST(GroupLinks, GroupsOfAnAxisHaveItsLinks) {
  // Nodes {0..3} and {4..7}: stages apart, tensor and data within.
  const GridLinks links(nodes_of_four(false), Grid({2, 2, 2}));
  EXPECT_FALSE(links.of_group(GroupAxis::Tensor, {0, 1}).between_nodes);
  EXPECT_FALSE(links.of_group(GroupAxis::Data, {0, 2}).between_nodes);
  EXPECT_TRUE(links.of_group(GroupAxis::Tied, {0, 4}).between_nodes);
  EXPECT_TRUE(links.of_group(GroupAxis::World, {}).between_nodes);
  EXPECT_THROW(links.of_group(GroupAxis::Pipeline, {0, 4}), InternalError);
  // Both stages on one node: their tied parameters do not leave it, though the world does.
  const GridLinks near(nodes_of_four(false), Grid({1, 4, 2}));
  EXPECT_FALSE(near.of_group(GroupAxis::Tied, {0, 2}).between_nodes);
  EXPECT_TRUE(near.of_group(GroupAxis::Tied, {0, 6}).between_nodes);
}

TEST(GroupLinks, GpusOfANodeShareItsPort) {
  const Cluster cluster = nodes_of_eight_gpus(true);
  const double inside = 7 * 0.201e-3;
  // An eighth of 50 GB/s: 6.4 ms for 40 MB, 1.6 ms for 10 MB.
  EXPECT_DOUBLE_EQ(world_seconds(cluster, "reduce-scatter", 8), inside);
  EXPECT_DOUBLE_EQ(world_seconds(cluster, "reduce-scatter", 16), inside + 6.405e-3);
  EXPECT_DOUBLE_EQ(world_seconds(cluster, "reduce-scatter", 64), inside + 7 * 1.605e-3);
  // Two data groups of eight, four members on each of two nodes: all eight GPUs send.
  const GridLinks pairs(cluster, Grid({8, 1, 2}));
  EXPECT_EQ(pairs.data().members_on_node, 4);
  EXPECT_EQ(pairs.data().link, (Link{5e-6, 50e9 / 8}));
  EXPECT_EQ(pairs.tensor().members_on_node, 1);
}

TEST(GroupLinks, OneLevelIsLeftWhereTwoAreNot) {
  Cluster cluster = nodes_of_eight_gpus(false);
  // One member of each group on each node, and nodes with unequally many.
  EXPECT_EQ(GridLinks(cluster, Grid({2, 1, 8})).data().members_on_node, 1);
  EXPECT_EQ(GridLinks(cluster, Grid({12, 1, 1})).data().members_on_node, 1);
  EXPECT_DOUBLE_EQ(world_seconds(cluster, "reduce-scatter", 12),
                   collective_seconds("reduce-scatter", whole_buffer, 12, cluster.between_nodes));
  // What goes over MPI, as on processors, is a ring of all.
  cluster.two_level_collectives = false;
  for (const int ranks : {16, 64}) {
    EXPECT_DOUBLE_EQ(world_seconds(cluster, "all-reduce", ranks),
                     collective_seconds("all-reduce", whole_buffer, ranks, cluster.between_nodes));
  }
}

TEST(GroupLinks, NoGroupIsSlowerThanItsAxis) {
  std::mt19937 generator(7);
  for (int round = 0; round < 200; ++round) {
    Cluster cluster = nodes_of_four(false);
    cluster.devices_per_node = 1 + static_cast<int>(generator() % 8);
    const GridShape shape{1 + static_cast<int>(generator() % 4),
                          1 + static_cast<int>(generator() % 4),
                          1 + static_cast<int>(generator() % 4)};
    const Grid grid(shape);
    const GridLinks links(cluster, grid);
    const auto leaves = [&](Axis axis) {
      for (int rank = 0; rank < grid.ranks(); ++rank) {
        std::set<int> nodes;
        for (const int member : grid.group(axis, rank))
          nodes.insert(member / cluster.devices_per_node);
        if (nodes.size() > 1) return true;
      }
      return false;
    };
    EXPECT_EQ(links.tensor().between_nodes, leaves(Axis::Tensor));
    EXPECT_EQ(links.data().between_nodes, leaves(Axis::Data));
    for (int stage = 0; stage + 1 < shape.pipeline; ++stage) {
      bool apart = false;
      for (int rank = 0; rank < grid.ranks(); ++rank) {
        Coordinates place = grid.coordinates_of(rank);
        if (place.pipeline != stage) continue;
        ++place.pipeline;
        apart |= rank / cluster.devices_per_node != grid.rank_of(place) / cluster.devices_per_node;
      }
      EXPECT_EQ(links.stages(stage, stage + 1).between_nodes, apart);
    }
  }
}

}  // namespace
}  // namespace garonne::plan
