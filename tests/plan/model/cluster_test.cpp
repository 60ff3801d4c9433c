#include "plan/model/cluster.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "base/error.hpp"

namespace garonne::plan {
namespace {

const std::string small = R"(name = "two nodes"
devices_per_node = 4
nodes = 2
[device]
memory = "16 GiB"
bytes_per_second = 1e12
efficiency = 0.5
[device.flops]
bfloat16 = 100e12
[link.inside_node]
latency_seconds = 1e-6
bytes_per_second = 100e9
[link.between_nodes]
latency_seconds = 5e-6
bytes_per_second = 20e9
per = "node"
)";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const auto at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

void refused(const std::string& text, const std::string& words) {
  try {
    parse_cluster(text, "test.toml");
    FAIL() << "accepted: " << words;
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
  }
}

TEST(Cluster, ReadsEveryKey) {
  const Cluster cluster = parse_cluster(small, "test.toml");
  EXPECT_EQ(cluster.name, "two nodes");
  EXPECT_EQ(cluster.devices(), 8);
  EXPECT_EQ(cluster.memory_bytes, std::int64_t{16} << 30);
  EXPECT_EQ(cluster.flops(Precision::BFloat16), 50e12);
  EXPECT_EQ(cluster.bytes_per_second, 1e12);
  EXPECT_EQ(cluster.inside_node, (Link{1e-6, 100e9}));
  EXPECT_EQ(cluster.between_nodes, (Link{5e-6, 20e9}));
  EXPECT_TRUE(cluster.shared_by_node);
}

TEST(Cluster, RefusesWhatItDoesNotKnow) {
  refused(replaced(small, "latency_seconds", "latency_second"),
          "did you mean link.inside_node.latency_seconds?");
  refused(replaced(small, "devices_per_node = 4\n", ""),
          "devices_per_node: is missing in test.toml");
  refused(replaced(small, "nodes = 2", "nodes = 0"), "nodes = 0: must be an integer from 1");
  refused(replaced(small, "efficiency = 0.5", "efficiency = 1.5"), "at most 1");
  refused(replaced(small, "20e9", "0"), "must be above 0 (line 15)");
  refused(replaced(small, "20e9", "nan"), "must be above 0");
  refused(replaced(small, "\"16 GiB\"", "\"16 Gigs\""), "number of bytes");
  refused(replaced(small, "\"node\"", "\"rack\""), "\"device\" or \"node\"");
  refused(replaced(small, "bfloat16 = 100e12", ""), "device.flops");
  refused(replaced(small, "nodes = 2", "nodes = = 2"), "test.toml:3");
}

TEST(Cluster, NamesThePrecisionThatItsDevicesLack) {
  const Cluster cluster = parse_cluster(small, "test.toml");
  try {
    cluster.flops(Precision::Float64);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.key(), "device.flops.float64");
  }
}

TEST(Cluster, ReadsWhatItWrites) {
  const std::string text = to_toml(parse_cluster(small, "test.toml"));
  EXPECT_EQ(to_toml(parse_cluster(text, "again.toml")), text);
  EXPECT_EQ(parse_cluster(text, "again.toml").between_nodes, (Link{5e-6, 20e9}));
}

TEST(Cluster, TheShippedMachinesAreWhole) {
  int files = 0;
  for (const auto& file :
       std::filesystem::directory_iterator(GARONNE_SOURCE_DIR "/config/clusters")) {
    const Cluster cluster = load_cluster(file.path().string());
    EXPECT_GT(cluster.flops(Precision::Float32), 1e9) << file.path();
    EXPECT_GT(cluster.flops(Precision::BFloat16), 1e9) << file.path();
    EXPECT_FALSE(cluster.source.empty()) << file.path();
    ++files;
  }
  EXPECT_GE(files, 6);
}

}  // namespace
}  // namespace garonne::plan
