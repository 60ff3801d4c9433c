// Whether checkpoints are written while training goes on (checkpoint.saving): what the copy of the
// state takes that they are written from, and whether there is room for it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/grid.hpp"
#include "dist/session.hpp"
#include "plan/offload/tier_planner.hpp"
#include "plan/program/program.hpp"
#include "train/plans/grid_plan.hpp"
#include "train/setup/planning.hpp"

namespace garonne::train {

// Bytes of the copy of what the rank at `place` writes of its stage. `buckets`: of a Program of the
// stage, which say where shards are.
std::int64_t bytes_of_copy(const plan::ModelGraph& graph, const plan::StepShape& step,
                           const std::vector<plan::Bucket>& buckets, const Coordinates& place);

// What plans may take where checkpoint.saving = "asynchronous" has room left for the copy of the
// rank of the stage that writes most: of the budget where the processor computes, else of the host
// tier. Everything where it says otherwise.
struct PlanRoom {
  std::int64_t budget_bytes = 0;    // may be less than nothing
  std::int64_t reserved_bytes = 0;  // of the budget
  plan::LowerTiers below;
};
PlanRoom room_for_plan(const Setup& setup, const plan::ModelGraph& graph,
                       const plan::StepShape& step, std::int64_t budget_bytes);

// What a PlanError says besides, where `reserved_bytes` are more than 0.
std::string detail_of_copy(std::int64_t reserved_bytes);

// How a run saves.
struct Saving {
  bool asynchronous = false;
  // Of the copy: of this rank, and of the one that writes most.
  std::int64_t copy_bytes = 0;
  std::int64_t largest_copy_bytes = 0;
  // What it lacks beside the plan, where "auto" waits for checkpoints therefore.
  std::int64_t missing_bytes = 0;
  // The copy is in the host's memory and not in that of the device, which the budget is about.
  bool on_host = false;
  // What all ranks write of one checkpoint; 0 where it was not asked for.
  std::int64_t checkpoint_bytes = 0;

  // Of this rank, where there is a copy.
  std::int64_t bytes_in_budget() const { return asynchronous && !on_host ? copy_bytes : 0; }
  std::int64_t bytes_on_host() const { return asynchronous && on_host ? copy_bytes : 0; }
};

// As planned, of the ranks that write and lack most. What is free on a host without
// memory.host_budget is only known where the run starts: there is room then. Throws ConfigError for
// "asynchronous" without the room.
Saving saving_of(const GridPlan& plan, std::int64_t budget_bytes);

// Of a run, `copy_bytes` as this rank has them, all else alike on all ranks. `program`: the rank's.
// Throws ConfigError on all ranks for "asynchronous" where the host has not so much free.
// Collective.
Saving agree_on_saving(const Setup& setup, const Choice& choice, const plan::Program& program,
                       std::int64_t budget_bytes, dist::Session& session);

// A line for people; empty where nothing was to be decided.
std::string describe_saving(const Saving& saving);

}  // namespace garonne::train
