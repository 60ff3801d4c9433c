// Published ways to train with memory below the device, by name: fixed policies, with whose
// schedules they take and what they have below, and solvers of chains that move something, which
// choose both. They are there to be compared with what `auto` finds.
// Adding one takes a file and a line of the registry.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "plan/offload/memory_ways.hpp"

namespace garonne::plan {

class Mover;
struct MovedProgram;

struct OffloadPolicy {
  std::string name;  // for memory.plan
  std::string help;
  std::string schedule;         // the row of stage_solvers() that says what is run again
  std::vector<MemoryWay> ways;  // of memory.allow, all of which it takes
  bool on_host = false;         // the host does a part of it; else any tier will do
  // Programs of the mover's that are within its budget; none where that, or a tier, is too small.
  std::function<std::vector<MovedProgram>(const Mover&)> place = {};
  // In place of both, a row of chain_solvers() that moves something. Its answer to a budget says
  // what is run again, and what is below when the backward of a micro-batch begins.
  std::string chain_solver = {};
};

const std::vector<OffloadPolicy>& offload_policies();

// The row of a name; null where there is none.
const OffloadPolicy* offload_policy(const std::string& name);

// Whose schedules plans of that name have: the name of a policy's stage solver, or the name itself.
const std::string& schedule_of_plan(const std::string& plan);

// `below` as the policy uses it.
LowerTiers used_by(const OffloadPolicy& policy, LowerTiers below);

// Of all that memory.plan may be besides "auto": names with a line of help each.
std::vector<std::pair<std::string, std::string>> plans_with_offload();

// The members of the registry, each in a file of its own.
OffloadPolicy zero_offload_policy();
OffloadPolicy zero_infinity_policy();
OffloadPolicy pofo_policy();
OffloadPolicy offload_greedy_policy();
OffloadPolicy offload_greedy_star_policy();

}  // namespace garonne::plan
