#include "plan/offload/memory_ways.hpp"

namespace garonne::plan {

const std::vector<MemoryWayRow>& memory_ways() {
  static const std::vector<MemoryWayRow> rows = {
      {MemoryWay::Recompute, "recompute", false},
      {MemoryWay::OffloadActivations, "offload-activations", true},
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

}  // namespace garonne::plan
