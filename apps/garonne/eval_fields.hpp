// The part of `garonne eval` that is about fields.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "train/evaluation/field_evaluation.hpp"
#include "train/report/skill_page.hpp"

namespace garonne::apps {

struct FieldEvalOptions {
  train::FieldEvaluationOptions evaluation;
  std::string output;  // empty = RUN/skill.h5
};

// Everything is settled and every file is made on construction, before the work. Collective.
class FieldEval {
 public:
  FieldEval(const FieldEvalOptions& options, std::string run, train::TrainedModel& trained,
            const train::FieldWorkload& workload, dist::Session& session);

  // Evaluates forecasts, which the ranks share; rank 0 writes the HDF5 file and, where that is the
  // usual one, RUN/skill.json beside it, and, unless `quiet`, prints a table. Returns what --json
  // shows, on rank 0. Collective.
  nlohmann::ordered_json run(bool quiet, dist::Session& session);

 private:
  std::string run_;
  std::string output_;
  std::string note_;  // where what is evaluated on was trained on; else empty
  bool usual_;        // the report shows what it finds beside the usual file
  std::optional<train::FieldEvaluation> evaluation_;
  std::optional<train::SkillPage> page_;  // both on rank 0
  std::optional<data::SkillFile> file_;
};

}  // namespace garonne::apps
