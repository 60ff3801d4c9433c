// The tiers of memory below the device that the plans of a run may use: memory.host_budget and
// memory.disk, and what memory.allow says of them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "device/disk_tier.hpp"
#include "device/host_tier.hpp"
#include "dist/session.hpp"
#include "exec/model_state.hpp"
#include "plan/model/cluster.hpp"
#include "train/setup/available_memory.hpp"
#include "train/setup/planning.hpp"
#include "train/setup/run_device.hpp"

namespace garonne::train {

// Of a disk that nobody measured.
inline constexpr plan::DiskRates nominal_disk{0, 1e-4, 1e9, 1e9, false};

// Of copies between a device and its host that nobody measured.
inline constexpr plan::CopyRates nominal_copies{1e-5, 4e9, 4e9, 4e9, 4e9};

// Plans go by this share of what was measured, since disks have their moments.
inline constexpr double planned_share_of_rates = 0.9;

// What tables of costs know the disk below a folder by: where its file system is mounted. The
// folder itself where it is not there.
std::string disk_of(const std::string& folder);

// memory.plan for who compares all plans that the run may have: "auto", or keep-all where
// memory.allow leaves out what runs again.
std::string widest_plan(const RunConfig& config);

// Puts the tiers of the configuration into `setup`, with nominal rates and budgets as they are
// given, and what a rank keeps in memory for copies there into the step. Where memory.allow leaves
// out `recompute`, memory.plan becomes keep-all. Throws ConfigError (memory.host_budget,
// memory.disk, memory.allow, memory.disk_budget) for ways without their tier, for those that
// memory.plan contradicts, for a host tier where the device is the host, and for disks of GPUs.
void add_lower_tiers(Setup& setup);

// `setup` as it is where nothing is below the device.
Setup without_lower_tiers(Setup setup);
// As if one of them were not.
Setup without_tier(Tier tier, Setup setup);

// What the device has for copies to the disk as long as a Program runs that may move something
// there: those that do not move anything have `setup` without the disk. 0 where there is no disk,
// and for GPUs, whose copies go through the host.
std::int64_t disk_copy_bytes(const Setup& setup);
// Of a Program that was planned for one of the two.
bool has_disk_copies(const plan::Program& program);

// The disk of a node, shared by `ranks_on_node` of `setup`.
void set_disk_rates(const plan::DiskRates& node, Setup& setup);

// The copies of a device: of rates in both directions at once, where somebody said them. Plans take
// `share` of them.
void set_copy_rates(const plan::CopyRates& device, Setup& setup,
                    double share = planned_share_of_rates);

// Of each of the ranks on a node, on the disk of memory.disk: what is free there, where the budget
// is "auto". Throws ConfigError (memory.disk, memory.disk_budget) for a folder that is not there
// and for less free space than all of them may take.
std::int64_t disk_budget(const RunConfig& config, int ranks_on_node);

// Of each of the ranks on a node, in the memory of the host: where the budget is "auto" half of
// what `free` is for each. `device_bytes` of it are taken by the tier of an emulated device, whose
// memory is the host's. Throws ConfigError (memory.host_budget) for more than that.
std::int64_t host_budget(const RunConfig& config, const AvailableMemory& free,
                         std::int64_t device_bytes);

// For who plans for this machine: the budgets of the tiers that are on it; of others, and of a
// folder that is not here, nobody knows what is free. `device_bytes`: memory.budget.
void use_lower_tiers_here(Setup& setup, std::int64_t device_bytes);

// What a cluster file says of the host of a node, shared by its devices: its memory, and how fast
// that is for updates there. Throws as host_budget() does.
void use_host_of(const plan::Cluster& cluster, Setup& setup);

// The least that any rank finds, into the tiers of `setup`; nothing where there are none.
// Collective over all ranks.
void agree_on_lower_budgets(Setup& setup, std::int64_t device_bytes, dist::Session& session);

// Memory for copies of a GPU to its host, before there are transports (RunDevice::pin_host_tier).
void pin_host_tier(const plan::Program& program, RunDevice& device);

// The tiers of a rank that runs a Program; null where it has nothing there.
struct LowerMemory {
  std::unique_ptr<device::HostTier> host;
  std::unique_ptr<device::DiskTier> disk;

  device::TierMemory* host_memory() const { return host ? &host->memory() : nullptr; }
};

// As large as `program` needs them, with what lasts there. The rank's state, which is of this
// Program, has the memory for copies to the disk, and outlives the tiers but for what is on them.
// IoError.
LowerMemory make_lower_tiers(const Setup& setup, const plan::Program& program,
                             const RunDevice& device, exec::ModelState& state);

// For people: "the disk", "the host", "the host and the disk"; empty where there is nothing.
std::string name_of_tiers(const Setup& setup);

// A line of each tier for people: what and where, rates, and how much a rank may take; empty where
// there is none.
std::string describe_lower_tiers(const Setup& setup);

}  // namespace garonne::train
