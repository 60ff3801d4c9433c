#include "train/setup/lower_tiers.hpp"

#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <vector>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/key_limits.hpp"
#include "exec/tier_room.hpp"
#include "plan/offload/memory_ways.hpp"
#include "plan/program/replay.hpp"
#include "plan/step/workspace_buffer.hpp"

namespace garonne::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* staging_name = "copies to disk";

bool allows(const RunConfig& config, plan::MemoryWay way) {
  const std::vector<std::string>& names = config.memory.allow;
  return names.empty() || std::any_of(names.begin(), names.end(), [&](const std::string& name) {
           return plan::memory_way(name)->way == way;
         });
}

void check_ways(const RunConfig& config) {
  for (const std::string& name : config.memory.allow) {
    const plan::MemoryWayRow* const row = plan::memory_way(name);
    expect(row != nullptr, "memory.allow takes names of ways only");
    if (row->needs_lower_tier && config.memory.disk.empty()) {
      throw ConfigError("memory.allow", name,
                        "has nowhere to go: set memory.disk to a folder on a disk of the node");
    }
  }
  const std::string& plan = config.memory.plan;
  if (!allows(config, plan::MemoryWay::Recompute) && plan != "auto" && plan != "keep-all") {
    throw ConfigError("memory.plan", plan,
                      "runs operations again, which memory.allow leaves out; add \"recompute\" "
                      "there, or leave memory.plan at \"auto\"");
  }
}

// What the file system says of a path.
bool device_of(const fs::path& path, dev_t& device) {
  struct stat facts {};
  if (stat(path.c_str(), &facts) != 0) return false;
  device = facts.st_dev;
  return true;
}

}  // namespace

std::string disk_of(const std::string& folder) {
  std::error_code error;
  fs::path path = fs::canonical(folder, error);
  dev_t device = 0;
  if (error || !device_of(path, device)) return folder;
  for (dev_t above = 0; path.has_relative_path(); path = path.parent_path()) {
    if (!device_of(path.parent_path(), above) || above != device) break;
  }
  return path.string();
}

std::string widest_plan(const RunConfig& config) {
  return allows(config, plan::MemoryWay::Recompute) ? "auto" : "keep-all";
}

void add_lower_tiers(Setup& setup) {
  RunConfig& config = setup.config;
  check_ways(config);
  if (!allows(config, plan::MemoryWay::Recompute)) config.memory.plan = widest_plan(config);
  if (config.memory.disk.empty()) return;
  for (const plan::MemoryWayRow& row : plan::memory_ways()) {
    if (row.needs_lower_tier) setup.below.*plan::switch_of(row.way) = allows(config, row.way);
  }
  if (plan::ways_of(setup.below).empty()) return;
  if (setup.declaration.device.is_gpu()) {
    throw ConfigError("memory.disk", config.memory.disk,
                      "is for processors so far, and this run is on a GPU; leave it out");
  }
  plan::LowerTier& disk = setup.below.tiers[Tier::Disk];
  disk.granularity = device::host_allocation_granularity;
  disk.budget_bytes = config.memory.disk_budget == RunConfig::automatic_budget
                          ? most_key_bytes
                          : config.memory.disk_budget;
  setup.step.workspaces.push_back({staging_name, device::disk_staging_bytes});
  set_disk_rates(nominal_disk, setup);
}

Setup without_lower_tiers(Setup setup) {
  setup.below.tiers.clear();
  std::erase_if(setup.step.workspaces, [](const plan::LibraryWorkspace& workspace) {
    return workspace.name == staging_name;
  });
  return setup;
}

void set_disk_rates(const plan::DiskRates& node, Setup& setup) {
  const auto disk = setup.below.tiers.find(Tier::Disk);
  if (disk == setup.below.tiers.end()) return;
  setup.disk = node;
  const double share = planned_share_of_rates / setup.ranks_on_node / (node.half_duplex ? 2 : 1);
  disk->second.links = {{node.latency_seconds, node.write * share},
                        {node.latency_seconds, node.read * share}};
}

std::int64_t disk_budget(const RunConfig& config, int ranks_on_node) {
  std::error_code error;
  const fs::space_info space = fs::space(config.memory.disk, error);
  if (error) {
    throw ConfigError("memory.disk", config.memory.disk,
                      fmt::format("cannot be used: {}", error.message()));
  }
  constexpr auto most = static_cast<std::uintmax_t>(most_key_bytes);
  const auto free = static_cast<std::int64_t>(std::min(space.available, most));
  const std::int64_t share = free / ranks_on_node / device::host_allocation_granularity *
                             device::host_allocation_granularity;
  if (config.memory.disk_budget == RunConfig::automatic_budget) return share;
  if (config.memory.disk_budget <= share) return config.memory.disk_budget;
  throw ConfigError("memory.disk_budget", format_bytes(config.memory.disk_budget),
                    fmt::format("for each of {} ranks of a node is more than the {} that are free "
                                "on the disk of {}",
                                ranks_on_node, format_bytes(free), config.memory.disk));
}

void use_disk_here(Setup& setup) {
  std::error_code error;
  if (setup.below.empty() || !fs::is_directory(setup.config.memory.disk, error)) return;
  setup.below.tiers.at(Tier::Disk).budget_bytes = disk_budget(setup.config, setup.ranks_on_node);
}

void agree_on_disk_budget(Setup& setup, dist::Session& session) {
  if (setup.below.empty()) return;
  std::int64_t bytes = 0;
  session.agree([&] { bytes = disk_budget(setup.config, session.ranks_on_node()); });
  setup.below.tiers.at(Tier::Disk).budget_bytes =
      session.all_reduce_min(std::vector<std::int64_t>{bytes})[0];
}

std::unique_ptr<device::DiskTier> make_disk_tier(const Setup& setup, const plan::Program& program,
                                                 exec::ModelState& state) {
  const std::int64_t peak = plan::replay(program).of(Tier::Disk).peak_bytes;
  if (peak == 0) return nullptr;
  const at::Tensor& staging = state.buffers.tensor(plan::workspace_buffer(staging_name));
  auto disk = std::make_unique<device::DiskTier>(device::DiskTierSettings{
      .folder = setup.config.memory.disk,
      .limit_bytes = peak,
      .file_bytes = exec::tier_room(program, Tier::Disk, peak),
      .staging = {Tier::Host, static_cast<std::byte*>(staging.data_ptr()), staging.numel()}});
  exec::make_buffers_below(state, setup.model, program,
                           static_cast<std::uint64_t>(setup.config.train.seed),
                           {nullptr, disk.get()});
  return disk;
}

std::string describe_disk(const Setup& setup) {
  if (!setup.below.tiers.contains(Tier::Disk)) return "";
  const plan::LowerTier& disk = setup.below.tiers.at(Tier::Disk);
  constexpr double gigabyte = 1e9;
  const std::string limit = disk.budget_bytes == most_key_bytes
                                ? "what is free there"
                                : format_bytes(disk.budget_bytes) + " a rank";
  return fmt::format(
      "disk      {} · {} · {} {:.2f} GB/s, reads {:.2f} GB/s, both at once; "
      "plans take {:.0f} %{} of it\n",
      setup.config.memory.disk, limit,
      setup.disk == nominal_disk ? "nobody measured it: taken to write"
                                 : "measured while computing: writes",
      setup.disk.write / gigabyte, setup.disk.read / gigabyte, 100 * planned_share_of_rates,
      setup.ranks_on_node > 1 ? fmt::format(", shared by {} ranks,", setup.ranks_on_node) : "");
}

}  // namespace garonne::train
