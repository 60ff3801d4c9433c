#include "plan/graph/task_option.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace garonne::plan {

int cheapest_option(const ComputationGraph& graph, int task, const std::vector<int>& needed) {
  const std::vector<TaskOption>& options = graph.tasks[static_cast<std::size_t>(task)].options;
  int best = -1;
  std::pair<double, std::int64_t> best_cost;
  for (std::size_t o = 0; o < options.size(); ++o) {
    const std::vector<int>& makes = options[o].makes;
    const bool enough = std::all_of(needed.begin(), needed.end(), [&](int value) {
      return std::find(makes.begin(), makes.end(), value) != makes.end();
    });
    if (!enough) continue;
    std::int64_t bytes = options[o].transient_bytes;
    for (const int value : makes) bytes += graph.values[static_cast<std::size_t>(value)].bytes;
    const std::pair<double, std::int64_t> cost = {options[o].seconds, bytes};
    if (best >= 0 && cost >= best_cost) continue;
    best = static_cast<int>(o);
    best_cost = cost;
  }
  return best;
}

}  // namespace garonne::plan
