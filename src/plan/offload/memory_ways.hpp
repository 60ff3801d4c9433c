// Ways in which a plan needs less memory of the device, by their names in memory.allow.
#pragma once

#include <string>
#include <vector>

#include "plan/offload/tier_planner.hpp"

namespace garonne::plan {

// What plans may do so that they fit. What is not in memory.allow they do not.
enum class MemoryWay {
  Recompute,
  OffloadActivations,
  OffloadGradients,
  OffloadWeights,
  OffloadStates
};

struct MemoryWayRow {
  MemoryWay way = MemoryWay::Recompute;
  std::string name;
  bool needs_lower_tier = false;
};

// All of them; a run has the bits of one without them.
const std::vector<MemoryWayRow>& memory_ways();

const std::string& name_of(MemoryWay way);

// The row of a name; null where there is none.
const MemoryWayRow* memory_way(const std::string& name);

// Whether tiers below the device are used that way, and how it is said that they are.
bool LowerTiers::*switch_of(MemoryWay way);

// Those that plans with `below` may take there.
std::vector<MemoryWay> ways_of(const LowerTiers& below);

// `below` with one of them only.
LowerTiers only(MemoryWay way, LowerTiers below);
// `below` without it.
LowerTiers without(MemoryWay way, LowerTiers below);

}  // namespace garonne::plan
