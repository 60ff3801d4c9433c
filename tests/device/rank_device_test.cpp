// Which GPU a rank works on, on nodes that are made up, and what a GPU's budget is.
#include "device/rank_device.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "device/cuda_budget.hpp"
#include "device/visible_devices.hpp"
#include "message_of.hpp"

namespace garonne::device {
namespace {

std::string message_of_config_error(const std::function<void()>& action) {
  try {
    action();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

// A node's devices as its system shows them, in a folder of the test.
class MadeUpNode : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "garonne-node-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void add(const std::string& address, const std::string& numa_node, const std::string& cores) {
    const auto folder = folder_ / "bus/pci/devices" / address;
    std::filesystem::create_directories(folder);
    std::ofstream(folder / "numa_node") << numa_node << "\n";
    std::ofstream(folder / "local_cpulist") << cores << "\n";
  }

  NodeFacts facts(const std::string& cores = "") const {
    return {.host = "node07", .cores = cores, .system_folder = folder_.string()};
  }

  std::filesystem::path folder_;
};

std::string bus_id(int device) {
  return "0000:" + std::to_string(10 + device) + ":00.0";
}

// The ranks of a node that each see `visible` devices, the first of which is number `first` of
// rank.
std::vector<RankDevice> ranks_of_node(int ranks, int visible,
                                      const std::function<int(int node_rank)>& first) {
  std::vector<RankDevice> all;
  for (int node_rank = 0; node_rank < ranks; ++node_rank) {
    const int ordinal = device_of_rank(visible, node_rank, ranks);
    all.push_back({.rank = 8 + node_rank,
                   .node_rank = node_rank,
                   .ordinal = ordinal,
                   .visible_devices = visible,
                   .bus_id = bus_id(first(node_rank) + ordinal),
                   .name = "NVIDIA H200",
                   .total_bytes = std::int64_t{139} << 30});
  }
  return all;
}

int zero(int) {
  return 0;
}

TEST(DeviceOfRank, IsTheNodeRanksOwnWhereThereAreEnough) {
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(device_of_rank(4, rank, 4), rank);
    EXPECT_EQ(device_of_rank(8, rank, 4), rank);
    EXPECT_EQ(device_of_rank(1, rank, 4), 0) << "the launcher chose";
  }
  EXPECT_THROW(device_of_rank(0, 0, 1), InternalError);
  EXPECT_THROW(device_of_rank(1, 1, 1), InternalError);
}

// Of any devices and ranks: neighbours share, no device has two ranks more than another.
TEST(DeviceOfRank, SharesEvenlyAmongNeighbours) {
  for (int devices = 1; devices <= 8; ++devices) {
    for (int ranks = devices; ranks <= 20; ++ranks) {
      std::map<int, int> load;
      int last = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const int device = device_of_rank(devices, rank, ranks);
        ASSERT_GE(device, last);
        ASSERT_LT(device, devices);
        last = device;
        ++load[device];
      }
      ASSERT_EQ(load.size(), static_cast<std::size_t>(devices)) << "all are used";
      const auto [least, most] =
          std::ranges::minmax_element(load, {}, [](const auto& entry) { return entry.second; });
      EXPECT_LE(most->second - least->second, 1) << devices << " devices, " << ranks << " ranks";
    }
  }
}

TEST_F(MadeUpNode, ARankHasADeviceOfItsOwn) {
  add("0000:12:00.0", "1", "16-31,48-63");
  const auto ranks = ranks_of_node(4, 4, zero);
  const DeviceAssignment mine = assign_device(ranks, 2, facts("16-19"));
  EXPECT_FALSE(mine.shared());
  EXPECT_EQ(mine.device.ordinal, 2);
  EXPECT_EQ(mine.locality.numa_node, 1);
  EXPECT_TRUE(mine.near());
  EXPECT_NO_THROW(expect_nccl_possible(mine));
  EXPECT_EQ(describe(mine),
            "node07: rank 10 on device 2 of 4 visible, 0000:12:00.0, NVIDIA H200, 139.00 GiB, "
            "NUMA node 1, cores 16-19");
}

TEST_F(MadeUpNode, RanksThatShareADeviceAreNamedAndHaveNoNccl) {
  const auto ranks = ranks_of_node(4, 2, zero);
  const DeviceAssignment mine = assign_device(ranks, 1, facts());
  EXPECT_EQ(mine.sharing, (std::vector<int>{8, 9}));
  EXPECT_TRUE(contains(describe(mine), "shared by ranks 8 and 9"));
  const std::string text = message_of_config_error([&] { expect_nccl_possible(mine); });
  EXPECT_TRUE(contains(text, "grid.transport")) << text;
  EXPECT_TRUE(contains(text, "ranks 8 and 9 of node07 share device 0 (NVIDIA H200, 0000:10:00.0)"))
      << text;
  EXPECT_TRUE(contains(text, "\"mpi\"")) << text;
}

// What the launcher bound is one device, number 0, and another one for each rank.
TEST_F(MadeUpNode, ALauncherThatBindsIsKnownByTheAddresses) {
  const auto bound = ranks_of_node(4, 1, [](int node_rank) { return node_rank; });
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_FALSE(assign_device(bound, rank, facts()).shared());
    EXPECT_EQ(bound[static_cast<std::size_t>(rank)].ordinal, 0);
  }
  const auto unbound = ranks_of_node(4, 1, zero);
  EXPECT_EQ(assign_device(unbound, 3, facts()).sharing, (std::vector<int>{8, 9, 10, 11}));
}

// As where each rank was shown the same device of several.
TEST_F(MadeUpNode, SharedDevicesBesideUnusedOnesAreSaidOnce) {
  const auto ranks = ranks_of_node(2, 1, zero);
  NodeFacts node = facts();
  const std::string words = "ranks 8 and 9 share a device, and 3 of the 4 devices of the node are";
  EXPECT_FALSE(contains(describe(assign_device(ranks, 0, node)), words)) << "nobody knows of more";
  node.devices = 4;
  EXPECT_TRUE(contains(describe(assign_device(ranks, 0, node)), words));
  EXPECT_FALSE(contains(describe(assign_device(ranks, 1, node)), words));
  const auto each = ranks_of_node(2, 1, [](int node_rank) { return node_rank; });
  EXPECT_FALSE(contains(describe(assign_device(each, 0, node)), "share a device"));
  node.devices = 2;
  EXPECT_FALSE(contains(describe(assign_device(ranks_of_node(4, 2, zero), 0, node)), "used by no"));
}

TEST_F(MadeUpNode, ADeviceThatLetsOneProcessInIsNotShared) {
  auto ranks = ranks_of_node(2, 1, zero);
  for (RankDevice& rank : ranks) rank.mode = ComputeMode::Exclusive;
  for (int node_rank = 0; node_rank < 2; ++node_rank) {
    const std::string text =
        message_of_config_error([&] { assign_device(ranks, node_rank, facts()); });
    EXPECT_TRUE(contains(text, "exclusive") && contains(text, "ranks 8 and 9")) << text;
  }
  NodeFacts one_process = facts();
  one_process.one_process_for_all = true;
  EXPECT_TRUE(assign_device(ranks, 0, one_process).shared());
  ranks.resize(1);
  EXPECT_NO_THROW(assign_device(ranks, 0, facts())) << "alone";
}

// All ranks refuse, so that none waits for one that did.
TEST_F(MadeUpNode, ADeviceThatLetsNobodyInIsRefusedByAllRanks) {
  auto ranks = ranks_of_node(3, 3, zero);
  ranks[1].mode = ComputeMode::Prohibited;
  for (int node_rank = 0; node_rank < 3; ++node_rank) {
    const std::string text =
        message_of_config_error([&] { assign_device(ranks, node_rank, facts()); });
    EXPECT_TRUE(contains(text, "prohibited") && contains(text, "device 1")) << text;
  }
}

TEST_F(MadeUpNode, CoresFarFromTheDeviceAreSaid) {
  add("0000:10:00.0", "0", "0-15,32-47");
  const auto ranks = ranks_of_node(1, 1, zero);
  const DeviceAssignment far = assign_device(ranks, 0, facts("16-31"));
  EXPECT_FALSE(far.near());
  EXPECT_TRUE(contains(describe(far),
                       "\nnode07: rank 8 has cores 16-31, but those near its device "
                       "are 0-15,32-47"))
      << describe(far);
  EXPECT_TRUE(assign_device(ranks, 0, facts("14-31")).near());
  EXPECT_TRUE(assign_device(ranks, 0, facts("47")).near());
}

TEST_F(MadeUpNode, WhatTheSystemDoesNotKnowIsLeftOut) {
  add("0000:10:00.0", "-1", "");
  const auto ranks = ranks_of_node(2, 2, zero);
  for (int node_rank = 0; node_rank < 2; ++node_rank) {  // no NUMA nodes; no such device
    const DeviceAssignment mine = assign_device(ranks, node_rank, facts("0-3"));
    EXPECT_FALSE(mine.locality.numa_node);
    EXPECT_TRUE(mine.near());
    EXPECT_FALSE(contains(describe(mine), "NUMA"));
  }
}

TEST_F(MadeUpNode, AddressesAreFoundAsTheSystemWritesThem) {
  add("0000:3b:00.0", "1", "8-15");
  add("10000:e1:00.0", "0", "0-7");
  for (const char* id : {"0000:3B:00.0", "00000000:3B:00.0", "0000:3b:00.0"}) {
    EXPECT_EQ(locality_of(id, folder_.string()).numa_node, 1) << id;
  }
  EXPECT_EQ(locality_of("10000:E1:00.0", folder_.string()).cores, "0-7") << "a domain of five";
}

TEST(CoresOfList, ReadsWhatTheSystemWrites) {
  EXPECT_EQ(cores_of_list("0-2,8"), (std::vector<int>{0, 1, 2, 8}));
  EXPECT_EQ(cores_of_list("4,2-3,4"), (std::vector<int>{2, 3, 4}));
  EXPECT_EQ(cores_of_list(""), std::vector<int>());
  for (const char* list : {"3-1", "a", "1-", "-1", "1,,2", "99999999999"}) {
    EXPECT_THROW(cores_of_list(list), InternalError) << list;
  }
}

TEST(VisibleDevices, AreIndicesOrUuids) {
  EXPECT_FALSE(read_visible_devices(nullptr));
  EXPECT_EQ(read_visible_devices(""), std::vector<VisibleDevice>());
  EXPECT_EQ(read_visible_devices("2, 0"), (std::vector<VisibleDevice>{{2, ""}, {0, ""}}));
  EXPECT_EQ(read_visible_devices("GPU-8932f937-d72c"),
            (std::vector<VisibleDevice>{{-1, "GPU-8932f937-d72c"}}));
  for (const char* value : {"0,", "all", "-1", "0;1", "GPU-", "GPU-xyz", "0 1", ","}) {
    EXPECT_TRUE(contains(message_of_config_error([&] { read_visible_devices(value); }),
                         "is neither the index"))
        << value;
  }
  EXPECT_TRUE(contains(message_of_config_error([] { read_visible_devices("1,0,1"); }),
                       "\"1\" stands there twice"));
}

TEST(VisibleDevices, InstancesOfADeviceAreRefusedWithTheReason) {
  for (const char* value : {"MIG-GPU-8932f937-d72c/1/0", "0,MIG-41b35014-3a9f"}) {
    const std::string text = message_of_config_error([&] { read_visible_devices(value); });
    EXPECT_TRUE(contains(text, "instance of a device (MIG)")) << text;
    EXPECT_TRUE(contains(text, "GPU- UUID")) << text;
  }
}

// The runtime ends its list at an entry that it does not know, and says nothing.
TEST(VisibleDevices, AllThatAreNamedMustBeSeen) {
  EXPECT_NO_THROW(check_visible_devices(nullptr, 4));
  EXPECT_NO_THROW(check_visible_devices("0,1", 2));
  EXPECT_TRUE(contains(message_of_config_error([] { check_visible_devices("0,7,1", 1); }),
                       "entry 2 (7) is no device of this node"));
  EXPECT_TRUE(contains(message_of_config_error([] { check_visible_devices("GPU-77", 0); }),
                       "entry 1 (GPU-77)"));
  EXPECT_TRUE(contains(message_of_config_error([] { check_visible_devices("0", 2); }),
                       "before the program"));
  EXPECT_TRUE(contains(message_of_config_error([] { check_visible_devices("", 2); }),
                       "before the program"));
  EXPECT_TRUE(
      contains(message_of_config_error([] { check_visible_devices("", 0); }), "hides all devices"));
  EXPECT_TRUE(contains(message_of_config_error([] { check_visible_devices(nullptr, 0); }),
                       "no device on this"));
}

// The budget and its sixteenth, of all ranks together, leave 256 MiB, and not much more.
TEST(GpuBudget, LeavesWhatItSaysAndNoMore) {
  constexpr std::int64_t mebibyte = std::int64_t{1} << 20;
  for (const std::int64_t free :
       {300 * mebibyte, 80000 * mebibyte + 12345, 139000 * mebibyte - 1}) {
    for (const int ranks : {1, 2, 3, 8}) {
      const std::int64_t budget = automatic_gpu_budget(free, ranks);
      EXPECT_EQ(budget % 512, 0);
      EXPECT_GT(budget, 0);
      const std::int64_t taken = ranks * tier_bytes_of_budget(budget);
      const std::int64_t left = free - taken;
      EXPECT_GE(left, 256 * mebibyte);
      EXPECT_LE(left, 272 * mebibyte + ranks * 2048) << "17/16 of 256 MiB and what rounding takes";
    }
  }
  EXPECT_EQ(automatic_gpu_budget(std::int64_t{17} << 30, 1),
            (std::int64_t{16} << 30) - 256 * mebibyte);
  EXPECT_EQ(automatic_gpu_budget(std::int64_t{17} << 30, 2),
            (std::int64_t{8} << 30) - 128 * mebibyte);
  EXPECT_GT(automatic_gpu_budget(std::int64_t{1} << 62, 1), 0) << "nothing overflows";
  for (const std::int64_t free : {std::int64_t{0}, 100 * mebibyte, 272 * mebibyte}) {
    EXPECT_TRUE(
        contains(message_of_config_error([&] { automatic_gpu_budget(free, 2); }), "memory.budget"));
  }
}

TEST(GpuBudget, MeasuringTakesWhatItNeedsAndNoMoreThanIsFree) {
  constexpr std::int64_t gibibyte = std::int64_t{1} << 30;
  EXPECT_EQ(measuring_room(17 * gibibyte, 1, gibibyte - 100), gibibyte);
  EXPECT_EQ(measuring_room(17 * gibibyte, 2, 100 * gibibyte),
            automatic_gpu_budget(17 * gibibyte, 2));
  const std::string said =
      message_of_config_error([&] { measuring_room(gibibyte / 8, 2, 3 * gibibyte); });
  for (const char* part : {"run.device", "nodes are measured", "3.00 GiB", "128.00 MiB", "2 ranks"})
    EXPECT_TRUE(contains(said, part)) << said;
  EXPECT_FALSE(contains(said, "memory.budget")) << said;
}

TEST(GpuBudget, TakesASixteenthMore) {
  EXPECT_EQ(tier_bytes_of_budget(0), 0);
  EXPECT_EQ(tier_bytes_of_budget(1), 1024);
  EXPECT_EQ(tier_bytes_of_budget(16 << 20), 17 << 20);
  EXPECT_EQ(tier_bytes_of_budget(8192 + 1), 8704 + 1024);
}

}  // namespace
}  // namespace garonne::device
