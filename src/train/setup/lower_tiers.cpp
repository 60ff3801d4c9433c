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
#include "plan/offload/offload_policy.hpp"
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

void check_policy(const RunConfig& config, const plan::OffloadPolicy& policy) {
  if (policy.on_host ? config.memory.host_budget == 0
                     : config.memory.host_budget == 0 && config.memory.disk.empty()) {
    throw ConfigError(
        "memory.plan", policy.name,
        policy.on_host
            ? "has a part of the training on the host of a device with memory of its own: set "
              "run.device to such a device and memory.host_budget to bytes"
            : "has nowhere to go: set memory.disk to a folder on a disk of the node, or, for a "
              "device with memory of its own, memory.host_budget");
  }
  for (const plan::MemoryWay way : policy.ways) {
    if (allows(config, way)) continue;
    throw ConfigError("memory.plan", policy.name,
                      fmt::format("takes \"{0}\", which memory.allow leaves out; add it there, or "
                                  "leave memory.plan at \"auto\"",
                                  plan::name_of(way)));
  }
}

void check_ways(const RunConfig& config) {
  for (const std::string& name : config.memory.allow) {
    const plan::MemoryWayRow* const row = plan::memory_way(name);
    expect(row != nullptr, "memory.allow takes names of ways only");
    if (row->needs_lower_tier && config.memory.disk.empty() && config.memory.host_budget == 0) {
      throw ConfigError("memory.allow", name,
                        "has nowhere to go: set memory.disk to a folder on a disk of the node, or, "
                        "for a device with memory of its own, memory.host_budget");
    }
  }
  const std::string& plan = config.memory.plan;
  if (const plan::OffloadPolicy* const policy = plan::offload_policy(plan))
    return check_policy(config, *policy);
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

void check_host(const Setup& setup) {
  const RunConfig& config = setup.config;
  if (setup.declaration.device.kind == DeviceKind::Cpu) {
    throw ConfigError(
        "memory.host_budget",
        config.memory.host_budget == RunConfig::automatic_budget
            ? std::string("auto")
            : format_bytes(config.memory.host_budget),
        "is memory of the host beside that of a device, and here the processor is the device, "
        "whose memory is the host's: give it to memory.budget, or set memory.disk");
  }
}

void add_host(Setup& setup) {
  const RunConfig& config = setup.config;
  plan::LowerTier& host = setup.below.tiers[Tier::Host];
  host.granularity = device::host_allocation_granularity;
  host.budget_bytes = config.memory.host_budget == RunConfig::automatic_budget
                          ? most_key_bytes
                          : config.memory.host_budget;
  set_copy_rates(nominal_copies, setup);
}

void add_disk(Setup& setup) {
  const RunConfig& config = setup.config;
  plan::LowerTier& disk = setup.below.tiers[Tier::Disk];
  disk.granularity = device::host_allocation_granularity;
  disk.budget_bytes = config.memory.disk_budget == RunConfig::automatic_budget
                          ? most_key_bytes
                          : config.memory.disk_budget;
  // Of a GPU it is pinned memory of the host (RunDevice::disk_pieces).
  if (!setup.declaration.device.is_gpu())
    setup.step.workspaces.push_back({staging_name, device::disk_staging_bytes});
  set_disk_rates(nominal_disk, setup);
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
  if (!allows(config, plan::MemoryWay::Recompute) && !plan::offload_policy(config.memory.plan))
    config.memory.plan = widest_plan(config);
  if (config.memory.host_budget == 0 && config.memory.host_updates != "auto") {
    throw ConfigError("memory.host_updates", config.memory.host_updates,
                      "says when updates on the host end, and there are none: set "
                      "memory.host_budget, or leave it at \"auto\"");
  }
  if (config.memory.host_budget == 0 && config.memory.disk.empty()) return;
  setup.below.updates_beside_next_step = config.memory.host_updates == "auto";
  for (const plan::MemoryWayRow& row : plan::memory_ways()) {
    if (row.needs_lower_tier) setup.below.*plan::switch_of(row.way) = allows(config, row.way);
  }
  const bool moves = !plan::ways_of(setup.below).empty();
  if (config.memory.host_budget != 0) {
    check_host(setup);
    if (moves) add_host(setup);
  }
  if (!config.memory.disk.empty() && moves) add_disk(setup);
}

Setup without_tier(Tier tier, Setup setup) {
  setup.below.tiers.erase(tier);
  if (tier == Tier::Disk) {
    std::erase_if(setup.step.workspaces, [](const plan::LibraryWorkspace& workspace) {
      return workspace.name == staging_name;
    });
  }
  return setup;
}

std::int64_t disk_copy_bytes(const Setup& setup) {
  std::int64_t bytes = 0;
  for (const plan::LibraryWorkspace& workspace : setup.step.workspaces) {
    if (workspace.name == staging_name)
      bytes += round_up(workspace.bytes, setup.declaration.granularity);
  }
  return bytes;
}

bool has_disk_copies(const plan::Program& program) {
  const std::string name = plan::workspace_buffer(staging_name);
  return std::any_of(program.buffers.begin(), program.buffers.end(),
                     [&](const plan::Buffer& buffer) { return buffer.name == name; });
}

Setup without_lower_tiers(Setup setup) {
  for (const Tier tier : {Tier::Host, Tier::Disk}) setup = without_tier(tier, std::move(setup));
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

void set_copy_rates(const plan::CopyRates& device, Setup& setup, double share) {
  const auto host = setup.below.tiers.find(Tier::Host);
  if (host == setup.below.tiers.end()) return;
  setup.copies = device;
  const auto planned = [&](double alone, double both) { return share * (both > 0 ? both : alone); };
  host->second.links = {{device.latency_seconds, planned(device.out, device.out_with_in)},
                        {device.latency_seconds, planned(device.in, device.in_with_out)}};
}

std::int64_t host_budget(const RunConfig& config, const AvailableMemory& free,
                         std::int64_t device_bytes) {
  const std::int64_t left = std::max<std::int64_t>(0, free.bytes - device_bytes);
  const std::string beside =
      device_bytes > 0 ? " beside the emulated device, whose memory is the host's," : "";
  if (config.memory.host_budget == RunConfig::automatic_budget) {
    constexpr std::int64_t granularity = device::host_allocation_granularity;
    const std::int64_t half = left / 2 / granularity * granularity;
    if (half > 0) return half;
    throw ConfigError("memory.host_budget", "auto",
                      fmt::format("nothing is free{} by {}; give numbers of bytes to it and to "
                                  "memory.budget",
                                  beside, free.source.empty() ? "this system" : free.source));
  }
  if (free.source.empty() || config.memory.host_budget <= left) return config.memory.host_budget;
  throw ConfigError("memory.host_budget", format_bytes(config.memory.host_budget),
                    fmt::format("is more than the {} that each rank of this node may have{} by {}",
                                format_bytes(left), beside, free.source));
}

namespace {

std::int64_t host_budget_here(const Setup& setup, std::int64_t device_bytes, int ranks_on_node) {
  const bool emulated = setup.declaration.device.kind == DeviceKind::Emulated;
  return host_budget(setup.config,
                     available_memory(MemorySources::of_this_process(), ranks_on_node),
                     emulated ? device_bytes : 0);
}

}  // namespace

void use_lower_tiers_here(Setup& setup, std::int64_t device_bytes) {
  std::error_code error;
  for (auto& [tier, below] : setup.below.tiers) {
    if (tier == Tier::Host)
      below.budget_bytes = host_budget_here(setup, device_bytes, setup.ranks_on_node);
    if (tier == Tier::Disk && fs::is_directory(setup.config.memory.disk, error))
      below.budget_bytes = disk_budget(setup.config, setup.ranks_on_node);
  }
}

void use_host_of(const plan::Cluster& cluster, Setup& setup) {
  const auto host = setup.below.tiers.find(Tier::Host);
  if (host == setup.below.tiers.end()) return;
  if (cluster.host.bytes_per_second > 0) {
    host->second.update_bytes_per_second =
        cluster.host.bytes_per_second / cluster.devices_per_node * planned_share_of_rates;
  }
  if (cluster.host.memory_bytes == 0) return;
  const AvailableMemory each{cluster.host.memory_bytes / cluster.devices_per_node,
                             "host.memory of " + cluster.name};
  host->second.budget_bytes = host_budget(setup.config, each, 0);
}

void agree_on_lower_budgets(Setup& setup, std::int64_t device_bytes, dist::Session& session) {
  if (setup.below.empty()) return;
  std::vector<std::int64_t> bytes;
  session.agree([&] {
    for (const auto& [tier, below] : setup.below.tiers) {
      bytes.push_back(tier == Tier::Host
                          ? host_budget_here(setup, device_bytes, session.ranks_on_node())
                          : disk_budget(setup.config, session.ranks_on_node()));
    }
  });
  bytes = session.all_reduce_min(bytes);
  std::size_t place = 0;
  for (auto& [tier, below] : setup.below.tiers) below.budget_bytes = bytes[place++];
}

namespace {

std::int64_t peak_on(const plan::Program& program, Tier tier) {
  return plan::replay(program).of(tier).peak_bytes;
}

std::unique_ptr<device::HostTier> make_host_tier(const plan::Program& program,
                                                 const RunDevice& device) {
  const std::int64_t peak = peak_on(program, Tier::Host);
  if (peak == 0) return nullptr;
  return std::make_unique<device::HostTier>(
      device::HostTierSettings{.limit_bytes = peak,
                               .room_bytes = exec::tier_room(program, Tier::Host, peak),
                               .memory = device.host_tier(),
                               .spoils = device.kind() == DeviceKind::Emulated});
}

std::unique_ptr<device::DiskTier> make_disk_tier(const Setup& setup, const plan::Program& program,
                                                 const RunDevice& device,
                                                 const exec::ModelState& state) {
  const std::int64_t peak = peak_on(program, Tier::Disk);
  if (peak == 0) return nullptr;
  device::DiskTierSettings settings{.folder = setup.config.memory.disk,
                                    .limit_bytes = peak,
                                    .file_bytes = exec::tier_room(program, Tier::Disk, peak),
                                    .pinned = device.disk_pieces()};
  if (device.kind() != DeviceKind::Cuda) {
    const at::Tensor& staging = state.buffers.tensor(plan::workspace_buffer(staging_name));
    settings.staging = {Tier::Host, static_cast<std::byte*>(staging.data_ptr()), staging.numel()};
  }
  return std::make_unique<device::DiskTier>(settings);
}

constexpr double gigabyte = 1e9;

std::string limit_text(const plan::LowerTier& tier, const char* what_is_free) {
  return tier.budget_bytes == most_key_bytes ? std::string(what_is_free)
                                             : format_bytes(tier.budget_bytes) + " a rank";
}

std::string describe_host(const Setup& setup, const plan::LowerTier& host) {
  const bool nobody = setup.copies.out == nominal_copies.out;
  return fmt::format(
      "host      {} · {} {:.2f} GB/s out, {:.2f} GB/s in, both at once; plans take {:.0f} % of "
      "it\n",
      limit_text(host, "half of what is free there"),
      nobody ? "nobody measured its copies: taken for" : "copies of",
      setup.copies.out_with_in / gigabyte, setup.copies.in_with_out / gigabyte,
      100 * planned_share_of_rates);
}

std::string describe_disk(const Setup& setup, const plan::LowerTier& disk) {
  std::error_code error;
  const bool here = fs::is_directory(setup.config.memory.disk, error);
  return fmt::format(
      "disk      {}{} · {}\n"
      "          {} {:.2f} GB/s, reads {:.2f} GB/s, both at once; plans take {:.0f} %{} of it\n",
      setup.config.memory.disk, here ? "" : ", which is no folder of this machine",
      limit_text(disk, "what is free there"),
      setup.disk == nominal_disk ? "nobody measured it: taken to write"
                                 : "measured while computing: writes",
      setup.disk.write / gigabyte, setup.disk.read / gigabyte, 100 * planned_share_of_rates,
      setup.ranks_on_node > 1 ? fmt::format(", shared by {} ranks,", setup.ranks_on_node) : "");
}

}  // namespace

void pin_host_tier(const plan::Program& program, RunDevice& device) {
  device.pin_host_tier(exec::tier_room(program, Tier::Host, peak_on(program, Tier::Host)));
}

LowerMemory make_lower_tiers(const Setup& setup, const plan::Program& program,
                             const RunDevice& device, exec::ModelState& state) {
  LowerMemory memory{make_host_tier(program, device),
                     make_disk_tier(setup, program, device, state)};
  if (memory.host || memory.disk) {
    exec::make_buffers_below(state, setup.model, program,
                             static_cast<std::uint64_t>(setup.config.train.seed),
                             {memory.host_memory(), memory.disk.get()});
  }
  return memory;
}

std::string name_of_tiers(const Setup& setup) {
  std::string text;
  for (const auto& [tier, below] : setup.below.tiers)
    text += fmt::format("{}the {}", text.empty() ? "" : " and ", to_string(tier));
  return text;
}

std::string describe_lower_tiers(const Setup& setup) {
  std::string text;
  for (const auto& [tier, below] : setup.below.tiers)
    text += tier == Tier::Host ? describe_host(setup, below) : describe_disk(setup, below);
  return text;
}

}  // namespace garonne::train
