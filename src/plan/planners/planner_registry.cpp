#include <algorithm>
#include <set>

#include "base/error.hpp"
#include "plan/planners/planner.hpp"

namespace garonne::plan {

// The planner is in a file of its own.
#define GARONNE_PLANNER(name, summary, choose) \
  NamedChoice choose(PlannerProblem& problem); \
  planners.push_back({name, summary, choose})

const std::vector<NamedPlanner>& named_planners() {
  static const std::vector<NamedPlanner> registry = [] {
    std::vector<NamedPlanner> planners;
    GARONNE_PLANNER("megatron", "rules of thumb: tensor ranks on a node, then stages, then data",
                    choose_megatron);
    GARONNE_PLANNER("vtrain", "every data, pipeline and tensor size and micro-batch, simulated",
                    choose_vtrain);
    GARONNE_PLANNER("2bw", "depth, width and micro-batch of equal stages without a flush",
                    choose_double_buffered_weights);
    GARONNE_PLANNER("pipedream", "stages of any width on two levels of links, by dynamic programs",
                    choose_pipedream);
    GARONNE_PLANNER("piper", "stages of any data and tensor width, by a dynamic program",
                    choose_piper);
    GARONNE_PLANNER("flexflow", "ranks of its own for each block, by a Markov chain",
                    choose_flexflow);
    GARONNE_PLANNER("elf",
                    "schedule and what each pass keeps, by integer programs; small pipelines",
                    choose_elf);
    return planners;
  }();
  return registry;
}

#undef GARONNE_PLANNER

std::vector<const NamedPlanner*> planners_of(const std::string& names) {
  std::set<std::string> wanted;
  for (std::size_t begin = 0; begin <= names.size();) {
    const std::size_t end = std::min(names.find(',', begin), names.size());
    wanted.insert(names.substr(begin, end - begin));
    begin = end + 1;
  }
  const bool all = wanted.erase("all") > 0;
  std::vector<const NamedPlanner*> found;
  std::string known;
  for (const NamedPlanner& planner : named_planners()) {
    if (wanted.erase(std::string(planner.name)) > 0 || all) found.push_back(&planner);
    known += std::string(planner.name) + ", ";
  }
  if (!wanted.empty())
    throw ConfigError("--planner", *wanted.begin(), "is none of " + known + "all");
  return found;
}

}  // namespace garonne::plan
