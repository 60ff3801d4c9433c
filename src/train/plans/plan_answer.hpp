// What `garonne plan` found out about one grid, as JSON and as text.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "train/plans/grid_plan.hpp"
#include "train/plans/step_rates.hpp"

namespace garonne::train {

// Where seconds come from: a profile of these devices, the figures of a cluster file, or nowhere,
// with operations as declared.
enum class CostSource { Measured, Cluster, Declared };

struct PlanAnswer {
  const Setup& whole;    // the model before it was cut into stages
  const GridPlan& plan;  // of it
  std::int64_t budget_bytes = 0;
  CostSource costs = CostSource::Declared;
  const plan::Cluster* cluster = nullptr;  // where a file of one was given
  int threads = 0;                         // of a rank
  bool explains = false;
  ModelWork work = {};  // of a step; of rates nothing is said where it is none
};

// The format "garonne.plan" (docs/formats.md).
nlohmann::ordered_json to_json(const PlanAnswer& answer);
// For a terminal: stages, candidates, the memory table of the largest stage and what binds there.
std::string format_plan(const PlanAnswer& answer);

}  // namespace garonne::train
