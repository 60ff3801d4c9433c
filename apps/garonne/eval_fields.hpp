// The part of `garonne eval` that is about fields.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "train/evaluation/field_evaluation.hpp"

namespace garonne::apps {

struct FieldEvalOptions {
  train::FieldEvaluationOptions evaluation;
  std::string output;  // empty = RUN/skill.h5
};

// Evaluates forecasts, which the ranks share; rank 0 writes the HDF5 file and RUN/skill.json, and,
// unless `quiet`, prints a table. Returns what --json shows, on rank 0. Collective.
nlohmann::ordered_json evaluate_fields(const FieldEvalOptions& options, const std::string& run,
                                       train::TrainedModel& trained,
                                       const train::FieldWorkload& workload, bool quiet,
                                       dist::Session& session);

}  // namespace garonne::apps
