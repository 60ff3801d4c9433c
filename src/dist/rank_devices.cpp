#include "dist/rank_devices.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <filesystem>
#include <vector>

#include "base/error.hpp"
#include "base/process_cores.hpp"
#include "device/visible_devices.hpp"

namespace garonne::dist {
namespace {

using device::CudaStatus;
using device::RankDevice;

// What travels: of one size on all ranks.
struct Told {
  std::int64_t node = 0;
  std::int64_t node_rank = 0;
  std::int64_t ordinal = 0;
  std::int64_t visible_devices = 0;
  std::int64_t total_bytes = 0;
  std::int64_t mode = 0;
  std::array<char, 64> bus_id{};
  std::array<char, 256> name{};
};
using Words = std::array<std::int64_t, sizeof(Told) / sizeof(std::int64_t)>;

void check(device::CudaRuntime& runtime, CudaStatus status, const char* call) {
  if (status == CudaStatus::Success) return;
  throw ConfigError("run.device", "cuda",
                    fmt::format("{}: {}. Set run.device to \"cpu\" to do without", call,
                                runtime.error_text(status)));
}

// Of a rank that has only said where it is.
void find_device(device::CudaRuntime& runtime, const char* visible, int ranks_on_node,
                 RankDevice& mine) {
  check(runtime, runtime.device_count(mine.visible_devices), "cudaGetDeviceCount");
  device::check_visible_devices(visible, mine.visible_devices);
  mine.ordinal = device::device_of_rank(mine.visible_devices, mine.node_rank, ranks_on_node);
  device::CudaProperties properties;
  check(runtime, runtime.properties(mine.ordinal, properties), "cudaGetDeviceProperties");
  check(runtime, runtime.compute_mode(mine.ordinal, mine.mode), "cudaDeviceGetAttribute");
  check(runtime, runtime.bus_id(mine.ordinal, mine.bus_id), "cudaDeviceGetPCIBusId");
  mine.name = properties.name;
  mine.total_bytes = properties.total_bytes;
}

// Those of this rank's node, in the order of their node ranks.
std::vector<RankDevice> exchange(Session& session, const RankDevice& mine) {
  Told told{.node = session.node_first_rank(),
            .node_rank = mine.node_rank,
            .ordinal = mine.ordinal,
            .visible_devices = mine.visible_devices,
            .total_bytes = mine.total_bytes,
            .mode = static_cast<std::int64_t>(mine.mode)};
  mine.bus_id.copy(told.bus_id.data(), told.bus_id.size() - 1);
  mine.name.copy(told.name.data(), told.name.size() - 1);
  const auto words = std::bit_cast<Words>(told);
  const auto all = session.all_gather(std::vector<std::int64_t>(words.begin(), words.end()));
  std::vector<RankDevice> node(static_cast<std::size_t>(session.ranks_on_node()));
  for (int rank = 0; rank < session.size(); ++rank) {
    Words of_rank;
    std::copy_n(all.begin() + rank * std::ssize(of_rank), of_rank.size(), of_rank.begin());
    const auto each = std::bit_cast<Told>(of_rank);
    if (each.node != told.node) continue;
    node.at(static_cast<std::size_t>(each.node_rank)) = {
        .rank = rank,
        .node_rank = static_cast<int>(each.node_rank),
        .ordinal = static_cast<int>(each.ordinal),
        .visible_devices = static_cast<int>(each.visible_devices),
        .bus_id = each.bus_id.data(),
        .name = each.name.data(),
        .total_bytes = each.total_bytes,
        .mode = static_cast<device::ComputeMode>(each.mode)};
  }
  return node;
}

// Those that the driver shows on this node, whether or not a rank may use them; 0 = not known.
int devices_of_node() {
  std::error_code error;
  int devices = 0;
  for ([[maybe_unused]] const auto& entry :
       std::filesystem::directory_iterator("/proc/driver/nvidia/gpus", error))
    ++devices;
  return devices;
}

}  // namespace

RankDevices assign_devices(Session& session, device::CudaRuntime& runtime, const char* visible,
                           bool one_process_for_all, bool nccl) {
  RankDevice mine;
  mine.rank = session.rank();
  mine.node_rank = session.node_rank();
  session.agree([&] { find_device(runtime, visible, session.ranks_on_node(), mine); });
  const std::vector<RankDevice> node = exchange(session, mine);
  RankDevices found;
  session.agree([&] {
    device::NodeFacts facts;
    facts.host = session.host();
    facts.cores = core_list_text(cores_of_this_process());
    facts.devices = devices_of_node();
    facts.one_process_for_all = one_process_for_all;
    found.mine = device::assign_device(node, session.node_rank(), facts);
    if (nccl) device::expect_nccl_possible(found.mine);
  });
  for (const std::string& line : session.gather(device::describe(found.mine))) {
    found.table += line + '\n';
  }
  return found;
}

}  // namespace garonne::dist
