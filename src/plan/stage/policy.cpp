#include "plan/stage/policy.hpp"

#include <utility>

namespace garonne::plan {

StageSolver make_policy(std::string name, std::string help,
                        std::function<std::vector<NodeSchedule>(const ModelGraph&)> schedules) {
  StageSolver policy;
  policy.name = std::move(name);
  policy.help = std::move(help);
  policy.solve = [schedules](const StageProblem& problem, std::int64_t, const NodeSchedule&) {
    return schedules(problem.model);
  };
  policy.leanest = [schedules](const StageProblem& problem) { return schedules(problem.model); };
  policy.schedules = std::move(schedules);
  return policy;
}

}  // namespace garonne::plan
