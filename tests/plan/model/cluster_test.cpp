#include "plan/model/cluster.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/toml.hpp"
#include "plan/model/cost_table.hpp"

namespace garonne::plan {
namespace {

const std::string two_nodes = R"(name = "two nodes"
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
  const Cluster cluster = parse_cluster(two_nodes, "test.toml");
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
  refused(replaced(two_nodes, "latency_seconds", "latency_second"),
          "did you mean link.inside_node.latency_seconds?");
  refused(replaced(two_nodes, "devices_per_node = 4\n", ""),
          "devices_per_node: is missing in test.toml");
  refused(replaced(two_nodes, "nodes = 2", "nodes = 0"), "nodes = 0: must be an integer from 1");
  refused(replaced(two_nodes, "efficiency = 0.5", "efficiency = 1.5"), "at most 1");
  refused(replaced(two_nodes, "20e9", "0"),
          "must be bytes a second, such as 50e9, from 1e+06 to 1e+15 (line 15)");
  refused(replaced(two_nodes, "20e9", "nan"), "must be bytes a second");
  refused(replaced(two_nodes, "\"16 GiB\"", "\"16 Gigs\""), "number of bytes");
  refused(replaced(two_nodes, "\"node\"", "\"rack\""), "\"device\" or \"node\"");
  refused(replaced(two_nodes, "bfloat16 = 100e12", ""), "device.flops");
  refused(replaced(two_nodes, "nodes = 2", "nodes = = 2"), "test.toml:3");
}

// Everything that version 2 has.
const std::string gpus = R"(version = 2
name = "two nodes of GPUs"
source = "made up"
devices_per_node = 8
nodes = 2
[device]
kind = "cuda"
name = "some GPU"
driver = "580.65.06"
architecture = 90
multiprocessors = 132
memory = "141 GB"
reserved = "600 MiB"
bytes_per_second = 4.8e12
efficiency = 0.6
least_seconds = 2e-6
issue_seconds = 4e-6
[device.flops]
bfloat16 = 989e12
float16 = 989e12
float32 = 67e12
tfloat32 = 494e12
float64 = 67e12
[device.products]
rows = [1024, 8192]
columns = [1024, 8192]
depth = [1024, 8192]
efficiency = [0.3, 0.78]
alignment = 8
unaligned = 0.75
[link.inside_node]
latency_seconds = 1e-6
bytes_per_second = 450e9
curve_bytes = [1048576, 67108864]
curve_bytes_per_second = [50e9, 360e9]
[link.between_nodes]
latency_seconds = 5e-6
bytes_per_second = 50e9
[copy]
latency_seconds = 1e-5
out = 55e9
in = 54e9
out_with_in = 50e9
in_with_out = 40e9
[disk]
bytes = "3 TB"
latency_seconds = 1e-4
write = 3e9
read = 6e9
half_duplex = true
[host]
memory = "2 TB"
bytes_per_second = 300e9
communication_seconds_per_byte = 1e-12
)";

// A unit that was forgotten is no machine.
TEST(Cluster, RefusesWhatNoMachineHas) {
  refused(replaced(two_nodes, "\"16 GiB\"", "16"),
          "device.memory = 16: is 16 bytes, and must be at least 1.00 MiB");
  refused(replaced(two_nodes, "\"16 GiB\"", "\"16 Gigs\""), "units are B, kB, MB, GB");
  refused(replaced(two_nodes, "bfloat16 = 100e12", "bfloat16 = 100"),
          "device.flops.bfloat16 = 100: must be operations a second, such as 989e12, from 1e+09 to "
          "1e+17 (line 9)");
  refused(replaced(two_nodes, "100e12", "100e16"), "must be operations a second");
  refused(replaced(two_nodes, "bytes_per_second = 1e12", "bytes_per_second = 936"),
          "device.bytes_per_second = 936: must be bytes a second");
  refused(replaced(two_nodes, "latency_seconds = 5e-6", "latency_seconds = 5"),
          "link.between_nodes.latency_seconds = 5: must be seconds, such as 5e-6, from 0 to 1");
  refused(replaced(two_nodes, "latency_seconds = 1e-6", "latency_seconds = -1e-6"), "from 0 to 1");
}

TEST(Cluster, ReadsEveryKeyOfVersionTwo) {
  const Cluster cluster = parse_cluster(gpus, "test.toml");
  EXPECT_EQ(cluster.device, (DeviceFacts{DeviceKind::Cuda, 90, 132}));
  EXPECT_EQ(cluster.device_name, "some GPU");
  EXPECT_EQ(cluster.driver, "580.65.06");
  EXPECT_EQ(cluster.memory_bytes, 141'000'000'000);
  EXPECT_EQ(cluster.reserved_bytes, 600 << 20);
  EXPECT_EQ(cluster.least_seconds, 2e-6);
  EXPECT_EQ(cluster.issue_seconds, 4e-6);
  EXPECT_EQ(cluster.tfloat32_flops, 494e12);
  EXPECT_EQ(cluster.float16_flops, 989e12);
  ASSERT_EQ(cluster.products.points.size(), 2U);
  EXPECT_EQ(cluster.products.points[1], (ProductPoint{{8192, 8192, 8192}, 0.78}));
  EXPECT_EQ(cluster.products.alignment, 8);
  EXPECT_EQ(cluster.products.unaligned, 0.75);
  EXPECT_EQ(cluster.inside_node, (Link{1e-6, 450e9, {{{1048576, 50e9}, {67108864, 360e9}}}}));
  EXPECT_TRUE(cluster.between_nodes.curve.empty());
  EXPECT_EQ(cluster.copies.latency_seconds, 1e-5);
  EXPECT_EQ(cluster.copies.out, 55e9);
  EXPECT_EQ(cluster.copies.in, 54e9);
  EXPECT_EQ(cluster.copies.out_with_in, 50e9);
  EXPECT_EQ(cluster.copies.in_with_out, 40e9);
  EXPECT_EQ(cluster.disk.bytes, 3'000'000'000'000);
  EXPECT_EQ(cluster.disk.latency_seconds, 1e-4);
  EXPECT_EQ(cluster.disk.write, 3e9);
  EXPECT_EQ(cluster.disk.read, 6e9);
  EXPECT_TRUE(cluster.disk.half_duplex);
  EXPECT_EQ(cluster.host.memory_bytes, 2'000'000'000'000);
  EXPECT_EQ(cluster.host.bytes_per_second, 300e9);
  EXPECT_EQ(cluster.host.communication_seconds_per_byte, 1e-12);
  const NominalRates rates = rates_of(cluster, Precision::BFloat16);
  EXPECT_EQ(rates.operations_per_second, 989e12 * 0.6);
  EXPECT_EQ(rates.products, cluster.products);
  const NominalRates rounded = rates_of(cluster, Precision::Float32, ProductRounding::Tf32);
  EXPECT_EQ(rounded.operations_per_second, 494e12 * 0.6);
  EXPECT_EQ(rates_of(cluster, Precision::Float32).operations_per_second, 67e12 * 0.6);
}

TEST(Cluster, NamesTheRateOfTf32ThatItLacks) {
  Cluster cluster = parse_cluster(gpus, "test.toml");
  cluster.tfloat32_flops = 0;
  try {
    cluster.flops(Precision::Float32, ProductRounding::Tf32);
    ADD_FAILURE() << "not refused";
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.key(), "device.flops.tfloat32");
  }
}

// By its last part, as tables join keys of one prefix.
TEST(Cluster, EveryKeyIsInTheDocumentation) {
  const std::string text = read_text_file(GARONNE_SOURCE_DIR "/docs/formats.md", 1 << 24);
  const auto first = text.find("\n## Cluster files");
  const auto last = text.find("\n### What a GPU takes");
  ASSERT_NE(first, std::string::npos);
  ASSERT_NE(last, std::string::npos);
  const std::string section = text.substr(first, last - first);
  for (const TomlEntry& entry : parse_toml(gpus, "test.toml")) {
    const std::string name = entry.key.substr(entry.key.rfind('.') + 1);
    EXPECT_TRUE(section.find("." + name + "`") != std::string::npos ||
                section.find("`" + name + "`") != std::string::npos)
        << entry.key;
  }
}

TEST(Cluster, AFileOfVersionOneIsAProcessors) {
  const Cluster cluster = parse_cluster(two_nodes, "test.toml");
  EXPECT_EQ(cluster.device, DeviceFacts());
  EXPECT_EQ(cluster.device.granularity(), 64);
  EXPECT_EQ(cluster.least_seconds, 0);
  EXPECT_EQ(cluster.issue_seconds, 0);
  const NominalRates rates = rates_of(cluster, Precision::BFloat16);
  EXPECT_EQ(rates.operations_per_second, 50e12);
  EXPECT_EQ(rates.bytes_per_second, 1e12);
  EXPECT_EQ(parse_cluster("version = 1\n" + two_nodes, "test.toml").nodes, 2);
}

TEST(Cluster, GpusHaveFloorsWhereTheFileSaysNothing) {
  const std::string text =
      replaced(replaced(gpus, "least_seconds = 2e-6\n", ""), "issue_seconds = 4e-6\n", "");
  const Cluster cluster = parse_cluster(text, "test.toml");
  EXPECT_EQ(cluster.least_seconds, 3e-6);
  EXPECT_EQ(cluster.issue_seconds, 5e-6);
  EXPECT_EQ(
      parse_cluster(replaced(gpus, "issue_seconds = 4e-6", "issue_seconds = 0"), "t").issue_seconds,
      0);
}

TEST(Cluster, RefusesWhatVersionTwoCannotBe) {
  refused(replaced(gpus, "version = 2", "version = 3"), "must be an integer from 1 to 2 (line 1)");
  refused(replaced(gpus, "version = 2\n", ""),
          "device.kind: is a key of version 2 of cluster files (test.toml:6)");
  refused(replaced(gpus, "\"cuda\"", "\"rocm\""), "\"cpu\" or \"cuda\" (line 7)");
  refused(replaced(gpus, "architecture = 90\n", ""),
          "device.architecture: is missing in test.toml");
  refused(replaced(gpus, "kind = \"cuda\"", "kind = \"cpu\""),
          "device.architecture: is of devices of device.kind = \"cuda\" (line 10)");
  refused(replaced(gpus, "\"600 MiB\"", "\"141 GB\""), "leaves nothing of device.memory");
  refused(replaced(gpus, "rows = [1024, 8192]", "rows = [1024]"),
          "has 2 numbers where the other lists of its table have 1 (line 26)");
  refused(replaced(gpus, "rows = [1024, 8192]", "rows = 1024"), "must be a list of numbers");
  refused(replaced(gpus, "rows = [1024, 8192]", "rows = []"), "must be a list of numbers");
  refused(replaced(gpus, "rows = [1024, 8192]", "rows = [1024, \"8192\"]"), "a list of numbers");
  refused(replaced(gpus, "rows = [1024, 8192]", "rows = [1024, 0.5]"), "must be integers from 1");
  refused(replaced(gpus, "rows = [1024, 8192]\n", ""),
          "device.products.rows: is missing in test.toml, which has device.products.columns");
  refused(replaced(gpus, "[0.3, 0.78]", "[0.3, 1.78]"), "above 0 and at most 1 (line 28)");
  refused(replaced(gpus, "curve_bytes = [1048576, 67108864]\n", ""),
          "link.inside_node.curve_bytes: is missing");
  refused(replaced(gpus, "[50e9, 360e9]", "[360e9, 50e9]"), "has a rate that falls with size");
  refused(replaced(gpus, "[1048576, 67108864]", "[67108864, 1048576]"),
          "link.inside_node.curve_bytes_per_second: with link.inside_node.curve_bytes has sizes "
          "that do not ascend (line 35)");
  refused(replaced(gpus, "out_with_in = 50e9\n", ""), "copy.out_with_in: is missing");
  refused(replaced(gpus, "write = 3e9", "write = -3e9"),
          "must be bytes a second, such as 50e9, from 1e+06 to 1e+15 (line 48)");
  refused(replaced(gpus, "half_duplex = true", "half_duplex = 1"), "must be true or false");
  refused(replaced(gpus, "driver", "drivers"), "did you mean device.driver?");
  refused(replaced(two_nodes, "efficiency = 0.5", "efficiency = [0.5]"),
          "must be a number (line 7)");
}

TEST(Cluster, NamesThePrecisionThatItsDevicesLack) {
  const Cluster cluster = parse_cluster(two_nodes, "test.toml");
  try {
    cluster.flops(Precision::Float64);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.key(), "device.flops.float64");
  }
}

TEST(Cluster, ReadsWhatItWrites) {
  const std::string text = to_toml(parse_cluster(two_nodes, "test.toml"));
  EXPECT_EQ(to_toml(parse_cluster(text, "again.toml")), text);
  EXPECT_EQ(parse_cluster(text, "again.toml").between_nodes, (Link{5e-6, 20e9}));
  EXPECT_TRUE(text.starts_with("version = 2\n")) << text;
  // Every line of the file comes again: key, table and value.
  const std::string all = to_toml(parse_cluster(gpus, "test.toml"));
  EXPECT_EQ(to_toml(parse_cluster(all, "again.toml")), all);
  const auto entries = [](const std::string& toml) {
    std::set<std::string> keys;
    for (const TomlEntry& entry : parse_toml(toml, "test.toml")) keys.insert(entry.key);
    return keys;
  };
  EXPECT_EQ(entries(all), entries(gpus));
}

TEST(Cluster, TheShippedMachinesAreWhole) {
  int files = 0;
  int of_gpus = 0;
  for (const auto& file :
       std::filesystem::directory_iterator(GARONNE_SOURCE_DIR "/config/clusters")) {
    const Cluster cluster = load_cluster(file.path().string());
    EXPECT_GT(cluster.flops(Precision::Float32), 1e9) << file.path();
    EXPECT_GT(cluster.flops(Precision::BFloat16), 1e9) << file.path();
    EXPECT_FALSE(cluster.source.empty()) << file.path();
    ++files;
    if (!cluster.device.is_gpu()) continue;
    ++of_gpus;
    EXPECT_FALSE(cluster.device_name.empty()) << file.path();
    EXPECT_GT(cluster.copies.in_with_out, 1e9) << file.path();
    // Not every site says it.
    if (cluster.host.memory_bytes == 0) continue;
    EXPECT_GT(cluster.host.memory_bytes, cluster.memory_bytes) << file.path();
  }
  EXPECT_GE(files, 6);
  EXPECT_GE(of_gpus, 5);
}

}  // namespace
}  // namespace garonne::plan
