#include "plan/stage_planner.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.hpp"
#include "plan/policy.hpp"

namespace garonne::plan {
namespace {

// Keeps the best answers while candidates come in.
class Selection {
 public:
  Selection(const ModelGraph& graph, const StepShape& step, std::int64_t budget_bytes,
            std::int64_t reserved_bytes)
      : graph_(graph), step_(step), budget_bytes_(budget_bytes), reserved_bytes_(reserved_bytes) {
    plan_.minimum_budget_bytes = std::numeric_limits<std::int64_t>::max();
  }

  void consider(const std::string& name, const StepSchedule& schedule) {
    Program program = make_training_program(graph_, step_, schedule);
    Prediction prediction = replay(program);
    const std::int64_t needed = std::max(prediction.peak_bytes, reserved_bytes_);
    plan_.minimum_budget_bytes = std::min(plan_.minimum_budget_bytes, needed);
    const StageCandidate candidate{name, prediction.peak_bytes, prediction.seconds,
                                   needed <= budget_bytes_};
    note(candidate);
    if (!candidate.fits || (found_ && !better(prediction, plan_.prediction))) return;
    found_ = true;
    program.name = name;
    program.budget_bytes = budget_bytes_;
    program.peak_bytes = prediction.peak_bytes;
    program.seconds = prediction.seconds;
    plan_.program = std::move(program);
    plan_.prediction = std::move(prediction);
  }

  bool found() const { return found_; }
  StagePlan take() { return std::move(plan_); }
  std::int64_t minimum_budget_bytes() const { return plan_.minimum_budget_bytes; }

 private:
  static bool better(const Prediction& a, const Prediction& b) {
    return std::make_pair(a.seconds, a.peak_bytes) < std::make_pair(b.seconds, b.peak_bytes);
  }

  void note(const StageCandidate& candidate) {
    const auto known =
        std::find_if(plan_.candidates.begin(), plan_.candidates.end(),
                     [&](const auto& other) { return other.name == candidate.name; });
    if (known == plan_.candidates.end()) {
      plan_.candidates.push_back(candidate);
      return;
    }
    const bool replaces = candidate.fits != known->fits
                              ? candidate.fits
                              : (candidate.fits ? candidate.seconds < known->seconds
                                                : candidate.peak_bytes < known->peak_bytes);
    if (replaces) *known = candidate;
  }

  const ModelGraph& graph_;
  const StepShape& step_;
  std::int64_t budget_bytes_;
  std::int64_t reserved_bytes_;
  StagePlan plan_;
  bool found_ = false;
};

}  // namespace

StagePlan plan_stage(const ModelGraph& graph, const StepShape& step, std::int64_t budget_bytes,
                     const std::string& wanted, std::int64_t reserved_bytes) {
  Selection selection(graph, step, budget_bytes, reserved_bytes);
  bool known = wanted == "auto";
  for (const auto& policy : policies()) {
    if (wanted != "auto" && wanted != policy.name) continue;
    known = true;
    for (auto& schedule : policy.schedules(graph)) {
      selection.consider(policy.name, same_for_all(std::move(schedule), step.micro_batches));
    }
  }
  if (!known) {
    std::string names = "auto";
    for (const auto& [name, help] : plan_names()) names += ", " + name;
    throw ConfigError("memory.plan", wanted, "unknown plan; known are " + names);
  }
  if (!selection.found()) {
    throw PlanError(selection.minimum_budget_bytes(), budget_bytes,
                    wanted == "auto"
                        ? "a smaller train.micro_batch or more data ranks with "
                          "smaller micro-batches need less"
                        : "that is for memory.plan = \"" + wanted + "\"; \"auto\" may need less");
  }
  return selection.take();
}

std::vector<std::pair<std::string, std::string>> plan_names() {
  std::vector<std::pair<std::string, std::string>> names;
  for (const auto& policy : policies()) names.emplace_back(policy.name, policy.help);
  return names;
}

}  // namespace garonne::plan
