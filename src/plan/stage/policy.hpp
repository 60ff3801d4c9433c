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

}  // namespace garonne::plan
