// Ways in which a plan needs less memory of the device, by their names in memory.allow.
#pragma once

#include <string>
#include <vector>

namespace garonne::plan {

// What plans may do so that they fit. What is not in memory.allow they do not.
enum class MemoryWay { Recompute, OffloadActivations, OffloadStates };

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

}  // namespace garonne::plan
