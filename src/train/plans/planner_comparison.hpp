// Planners of the literature beside the search over grids: what each chooses for the same run, and
// what that takes where Garonne plans and replays it as it does its own candidates.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "plan/planners/planner.hpp"
#include "train/plans/grid_search.hpp"

namespace garonne::train {

struct PlannerRow {
  std::string name;
  plan::NamedChoice choice;
  // Of the grid of the choice; none where there is none, or Garonne cannot plan it.
  std::optional<plan::GridOutcome> outcome;
};

struct PlannerComparison {
  GridSearchAnswer automatic;
  std::vector<PlannerRow> rows;
};

// `names`: as plan::planners_of takes them. Throws as it and search_grids_of_run() do.
PlannerComparison compare_planners(const GridSearchRequest& wish, const std::string& names);

// The table for a terminal, with the keys of the grid where one planner was asked; and the format
// "garonne.planners".
std::string format_planners(const GridSearchRequest& wish, const PlannerComparison& comparison);
nlohmann::ordered_json to_json(const GridSearchRequest& wish, const PlannerComparison& comparison);

}  // namespace garonne::train
