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
  EXPECT_DOUBLE_EQ(collective_traffic("all-reduce", 80, 4), 120);
  EXPECT_DOUBLE_EQ(collective_traffic("all-gather", 80, 4), 60);
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
  EXPECT_EQ(of_stage.tied, (Link{5e-6, 20e9}));
  EXPECT_EQ(of_stage.of_group(GroupAxis::Tensor), (Link{1e-6, 100e9}));
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
