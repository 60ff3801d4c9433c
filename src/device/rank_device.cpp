#include "device/rank_device.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/bytes.hpp"
#include "base/error.hpp"

namespace garonne::device {
namespace {

// "2", "2 and 3", "2, 3 and 5".
std::string list_of(const std::vector<int>& ranks) {
  if (ranks.size() == 1) return std::to_string(ranks.front());
  return fmt::format("{} and {}", fmt::join(ranks.begin(), ranks.end() - 1, ", "), ranks.back());
}

std::vector<int> ranks_on(const std::vector<RankDevice>& ranks, const std::string& bus_id) {
  std::vector<int> there;
  for (const RankDevice& rank : ranks) {
    if (rank.bus_id == bus_id) there.push_back(rank.rank);
  }
  std::ranges::sort(there);
  return there;
}

std::string full_name(const RankDevice& device) {
  return fmt::format("{} ({}, {})", device.ordinal, device.name, device.bus_id);
}

void check_mode(const RankDevice& device, const std::vector<int>& sharing, const NodeFacts& node) {
  if (device.mode == ComputeMode::Prohibited) {
    throw ConfigError("run.device", "cuda",
                      fmt::format("device {} of {} lets no process in (compute mode "
                                  "\"prohibited\"). Hide it by CUDA_VISIBLE_DEVICES, or have "
                                  "nvidia-smi -c 0 run there",
                                  full_name(device), node.host));
  }
  if (device.mode == ComputeMode::Exclusive && sharing.size() > 1 && !node.one_process_for_all) {
    throw ConfigError(
        "run.device", "cuda",
        fmt::format("device {} of {} lets one process in (compute mode "
                    "\"exclusive\"), but ranks {} would share it. Start as many ranks "
                    "on a node as it has devices, or have nvidia-smi -c 0 run there",
                    full_name(device), node.host, list_of(sharing)));
  }
}

}  // namespace

int device_of_rank(int visible_devices, int node_rank, int ranks_on_node) {
  expect(
      visible_devices >= 1 && node_rank >= 0 && node_rank < ranks_on_node,
      fmt::format("{} devices for node rank {} of {}", visible_devices, node_rank, ranks_on_node));
  if (visible_devices >= ranks_on_node) return node_rank;
  return static_cast<int>(std::int64_t{node_rank} * visible_devices / ranks_on_node);
}

bool DeviceAssignment::near() const {
  if (cores.empty() || locality.cores.empty()) return true;
  const std::vector<int> mine = cores_of_list(cores);
  const std::vector<int> there = cores_of_list(locality.cores);
  return std::ranges::find_first_of(mine, there) != mine.end();
}

DeviceAssignment assign_device(const std::vector<RankDevice>& ranks, int node_rank,
                               const NodeFacts& node) {
  expect(node_rank >= 0 && node_rank < static_cast<int>(ranks.size()),
         fmt::format("node rank {} of {}", node_rank, ranks.size()));
  for (std::size_t place = 0; place < ranks.size(); ++place) {
    expect(ranks[place].node_rank == static_cast<int>(place) && !ranks[place].bus_id.empty(),
           fmt::format("rank {} told no device", ranks[place].rank));
    check_mode(ranks[place], ranks_on(ranks, ranks[place].bus_id), node);
  }
  const RankDevice& mine = ranks[static_cast<std::size_t>(node_rank)];
  std::set<std::string> used;
  for (const RankDevice& rank : ranks) used.insert(rank.bus_id);
  return {.device = mine,
          .sharing = ranks_on(ranks, mine.bus_id),
          .host = node.host,
          .locality = locality_of(mine.bus_id, node.system_folder),
          .cores = node.cores,
          .devices_of_node = node.devices,
          .used_devices = static_cast<int>(used.size())};
}

void expect_nccl_possible(const DeviceAssignment& assignment) {
  if (!assignment.shared()) return;
  throw ConfigError(
      "grid.transport", "nccl",
      fmt::format("ranks {} of {} share device {}, and NCCL has one rank on a "
                  "device. Start as many ranks on a node as it has devices, or set "
                  "grid.transport to \"mpi\"",
                  list_of(assignment.sharing), assignment.host, full_name(assignment.device)));
}

std::string describe(const DeviceAssignment& assignment) {
  const RankDevice& device = assignment.device;
  std::string text =
      fmt::format("{}: rank {} on device {} of {} visible, {}, {}, {}", assignment.host,
                  device.rank, device.ordinal, device.visible_devices, device.bus_id, device.name,
                  format_bytes(device.total_bytes));
  if (assignment.shared()) text += fmt::format(", shared by ranks {}", list_of(assignment.sharing));
  const DeviceLocality& locality = assignment.locality;
  if (locality.numa_node) text += fmt::format(", NUMA node {}", *locality.numa_node);
  if (!assignment.cores.empty()) text += fmt::format(", cores {}", assignment.cores);
  if (!assignment.near()) {
    text += fmt::format(
        "\n{}: rank {} has cores {}, but those near its device are {}: copies between host and "
        "device may be slower",
        assignment.host, device.rank, assignment.cores, locality.cores);
  }
  const int unused = assignment.devices_of_node - assignment.used_devices;
  if (assignment.shared() && assignment.sharing.front() == device.rank && unused > 0) {
    text += fmt::format(
        "\n{}: ranks {} share a device, and {} of the {} devices of the node {} used by no rank: "
        "where they are the job's, let every rank see them all (CUDA_VISIBLE_DEVICES), or give "
        "each one of its own (srun --gpus-per-task=1)",
        assignment.host, list_of(assignment.sharing), unused, assignment.devices_of_node,
        unused == 1 ? "is" : "are");
  }
  return text;
}

}  // namespace garonne::device
