// Fixed policies of rematerialisation, as published or as found in other training systems: each
// one makes a family of schedules, from fastest to leanest, whatever the budget.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "plan/stage/stage_solver.hpp"

namespace garonne::plan {

// A policy as a row of the registry.
StageSolver make_policy(std::string name, std::string help,
                        std::function<std::vector<NodeSchedule>(const ModelGraph&)> schedules);

// What a node's value and record cost to make again, against what they occupy: the policy
// "selective" runs those again that are below a threshold.
double seconds_per_byte(const ModelGraph& graph, const NodeSpec& node);

}  // namespace garonne::plan
