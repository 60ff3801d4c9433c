#include "plan/offload/offload_policy.hpp"

#include <algorithm>

#include "plan/offload/mover.hpp"
#include "plan/stage/stage_planner.hpp"

namespace garonne::plan {

const std::vector<OffloadPolicy>& offload_policies() {
  static const std::vector<OffloadPolicy> rows = {zero_offload_policy(), zero_infinity_policy(),
                                                  pofo_policy(), offload_greedy_policy(),
                                                  offload_greedy_star_policy()};
  return rows;
}

const OffloadPolicy* offload_policy(const std::string& name) {
  for (const OffloadPolicy& row : offload_policies()) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

const std::string& schedule_of_plan(const std::string& plan) {
  const OffloadPolicy* const policy = offload_policy(plan);
  return policy == nullptr ? plan : policy->schedule;
}

LowerTiers used_by(const OffloadPolicy& policy, LowerTiers below) {
  for (const MemoryWayRow& row : memory_ways()) {
    if (!row.needs_lower_tier) continue;
    below.*switch_of(row.way) =
        std::find(policy.ways.begin(), policy.ways.end(), row.way) != policy.ways.end();
  }
  if (policy.on_host)
    std::erase_if(below.tiers, [](auto& tier) { return tier.first != Tier::Host; });
  return below;
}

std::vector<std::pair<std::string, std::string>> plans_with_offload() {
  std::vector<std::pair<std::string, std::string>> names = plan_names();
  for (const OffloadPolicy& policy : offload_policies())
    names.emplace_back(policy.name, policy.help);
  return names;
}

}  // namespace garonne::plan
