// Which GPU a rank works on, and who else works there.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "device/cuda_runtime.hpp"
#include "device/device_locality.hpp"

namespace garonne::device {

// The device, by its number among the visible ones, of a rank by its place among the ranks of its
// node (never the global rank): device 0 where one is visible, since then the launcher chose; the
// node rank's own where there are enough; else ranks share, neighbours first.
int device_of_rank(int visible_devices, int node_rank, int ranks_on_node);

// What each rank of a node tells the others of it.
struct RankDevice {
  int rank = 0;  // global, for people
  int node_rank = 0;
  int ordinal = 0;          // among the devices that the rank sees
  int visible_devices = 0;  // that the rank sees
  std::string bus_id;       // the same on all ranks that have the same device
  std::string name;
  std::int64_t total_bytes = 0;
  ComputeMode mode = ComputeMode::Shared;
};

// One rank's view of how its node is dealt out.
struct DeviceAssignment {
  RankDevice device;
  std::vector<int> sharing;  // global ranks on the same device, this one among them; ascending
  std::string host;
  DeviceLocality locality;
  std::string cores;        // that this rank may run on; empty: not known
  int devices_of_node = 0;  // 0: not known
  int used_devices = 0;     // of them, by ranks

  bool shared() const { return sharing.size() > 1; }
  // Whether some core that the rank may run on is near the device; also where nothing is known.
  bool near() const;
};

// What is known about the node beside its ranks.
struct NodeFacts {
  std::string host;
  std::string cores;  // that this rank may run on, "0-15"
  std::string system_folder = "/sys";
  int devices = 0;  // of the node, whether or not ranks see them; 0: not known
  // One process that uses devices for all others (CUDA's MPS): then an exclusive device is shared.
  bool one_process_for_all = false;
};

// `ranks` are all ranks of the node, in the order of their node ranks; `node_rank` is this one's.
// ConfigError where the device of some rank lets nobody in, or lets one process in and several
// ranks have it: all ranks of the node refuse alike.
DeviceAssignment assign_device(const std::vector<RankDevice>& ranks, int node_rank,
                               const NodeFacts& node);

// ConfigError of grid.transport where ranks share the device: NCCL has one rank on a device.
void expect_nccl_possible(const DeviceAssignment& assignment);

// Lines for people, printed at start: host, rank, device, address, memory, who shares it, NUMA
// node, cores; one more where the cores are far from the device, and one of the first rank that
// shares a device where the node has others that no rank uses.
std::string describe(const DeviceAssignment& assignment);

}  // namespace garonne::device
