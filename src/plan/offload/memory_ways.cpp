#include "plan/offload/memory_ways.hpp"

#include "base/error.hpp"

namespace garonne::plan {

const std::vector<MemoryWayRow>& memory_ways() {
  static const std::vector<MemoryWayRow> rows = {
      {MemoryWay::Recompute, "recompute", false},
      {MemoryWay::OffloadActivations, "offload-activations", true},
      {MemoryWay::OffloadGradients, "offload-gradients", true},
      {MemoryWay::OffloadWeights, "offload-weights", true},
      {MemoryWay::OffloadStates, "offload-states", true}};
  return rows;
}

const std::string& name_of(MemoryWay way) {
  return memory_ways().at(static_cast<std::size_t>(way)).name;
}

const MemoryWayRow* memory_way(const std::string& name) {
  for (const MemoryWayRow& row : memory_ways()) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

bool LowerTiers::*switch_of(MemoryWay way) {
  switch (way) {
    case MemoryWay::Recompute:
      break;
    case MemoryWay::OffloadActivations:
      return &LowerTiers::activations;
    case MemoryWay::OffloadGradients:
      return &LowerTiers::gradients;
    case MemoryWay::OffloadWeights:
      return &LowerTiers::weights;
    case MemoryWay::OffloadStates:
      return &LowerTiers::states;
  }
  throw InternalError(name_of(way) + " uses no tier below the device");
}

std::vector<MemoryWay> ways_of(const LowerTiers& below) {
  std::vector<MemoryWay> ways;
  for (const MemoryWayRow& row : memory_ways()) {
    if (row.needs_lower_tier && below.*switch_of(row.way)) ways.push_back(row.way);
  }
  return ways;
}

LowerTiers only(MemoryWay way, LowerTiers below) {
  for (const MemoryWayRow& row : memory_ways()) {
    if (row.needs_lower_tier) below.*switch_of(row.way) = row.way == way;
  }
  return below;
}

LowerTiers without(MemoryWay way, LowerTiers below) {
  below.*switch_of(way) = false;
  return below;
}

}  // namespace garonne::plan
