// Fixed policies of rematerialisation, as published or as found in other training systems: each
// one makes a family of schedules, from fastest to leanest.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "plan/step/node_schedule.hpp"

namespace garonne::plan {

struct Policy {
  std::string name;
  std::string help;
  std::function<std::vector<NodeSchedule>(const ModelGraph&)> schedules;
};
const std::vector<Policy>& policies();

}  // namespace garonne::plan
