// The tiers of memory below the device that the plans of a run may use: memory.disk, and what
// memory.allow says of it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "device/disk_tier.hpp"
#include "dist/session.hpp"
#include "exec/model_state.hpp"
#include "plan/model/cluster.hpp"
#include "train/setup/planning.hpp"

namespace garonne::train {

// Of a disk that nobody measured.
inline constexpr plan::DiskRates nominal_disk{0, 1e-4, 1e9, 1e9, false};

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
// out `recompute`, memory.plan becomes keep-all. Throws ConfigError (memory.disk, memory.allow,
// memory.disk_budget) for ways without their tier, for those that memory.plan contradicts, and for
// GPUs.
void add_lower_tiers(Setup& setup);

// `setup` as it is where nothing is below the device.
Setup without_lower_tiers(Setup setup);

// The disk of a node, shared by `ranks_on_node` of `setup`.
void set_disk_rates(const plan::DiskRates& node, Setup& setup);

// Of each of the ranks on a node, on the disk of memory.disk: what is free there, where the budget
// is "auto". Throws ConfigError (memory.disk, memory.disk_budget) for a folder that is not there
// and for less free space than all of them may take.
std::int64_t disk_budget(const RunConfig& config, int ranks_on_node);

// For who plans: disk_budget() into the tiers where their folder is on this machine, too; elsewhere
// nobody knows what is free.
void use_disk_here(Setup& setup);

// The least that any rank finds, into the tiers of `setup`; nothing where there are none.
// Collective over all ranks.
void agree_on_disk_budget(Setup& setup, dist::Session& session);

// The disk of a rank that runs `program`, as large as that needs it, with what lasts there; null
// where it has nothing there. The rank's state, which is of this Program, has the memory for
// copies, and outlives it but for what is on the disk. IoError.
std::unique_ptr<device::DiskTier> make_disk_tier(const Setup& setup, const plan::Program& program,
                                                 exec::ModelState& state);

// A line for people: folder, rates, and how much a rank may take; empty where there is no disk.
std::string describe_disk(const Setup& setup);

}  // namespace garonne::train
