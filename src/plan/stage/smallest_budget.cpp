#include "plan/stage/smallest_budget.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "plan/step/program_within.hpp"
#include "plan/step/step_planner.hpp"

namespace garonne::plan {
namespace {

std::int64_t peak_of(const ModelGraph& graph, const StepShape& step, const StepSchedule& schedule) {
  return make_leaner_program(graph, step, schedule).prediction.peak_bytes;
}

// Why `solver` has no plan, and what has.
std::string what_applies(const StageSolver& solver, const StepPlanner& planner) {
  const std::string reason = planner.refusal(solver);
  std::string others = "auto";
  for (const auto& other : stage_solvers()) {
    if (other.name != solver.name && planner.refusal(other).empty()) others += ", " + other.name;
  }
  return fmt::format("does not apply{}; what does: {}",
                     reason.empty() ? ": it finds no schedule of few enough passes" : ": " + reason,
                     others);
}

}  // namespace

ModelGraph with_equal_seconds(ModelGraph model) {
  for (auto& node : model.nodes) {
    if (node.hands_over) continue;
    node.forward.seconds = 1;
    node.forward.issue_seconds = 0;
    for (int k = 0; k < node.keep_options(); ++k) {
      KeepOption& option = node.keep_option(k);
      for (OperationCost* const cost :
           {&option.forward_keep, &option.backward, &option.backward_weight}) {
        cost->seconds = 1;
        cost->issue_seconds = 0;
      }
    }
  }
  return model;
}

LeanPlans find_lean_plans(const ModelGraph& declared, const StepShape& step,
                          const std::string& plan, TextCache* cache) {
  const std::vector<const StageSolver*> solvers = find_solvers(plan);
  const ModelGraph timeless = with_equal_seconds(declared);
  StepShape anywhere = step;
  anywhere.links = StepLinks();
  anywhere.kernels = KernelSeconds();
  const std::vector<CommunicationShape> shapes = communication_shapes(anywhere);
  LeanPlans lean;
  lean.bytes = std::numeric_limits<std::int64_t>::max();
  // How many gathers and reductions are under way is no matter of a micro-batch.
  const StepPlanner planner(timeless, shapes.front().step, cache);
  for (const StageSolver* solver : solvers) {
    auto schedule = planner.leanest(*solver);
    if (schedule) lean.entries.push_back({solver, std::move(*schedule)});
  }
  if (lean.entries.empty()) {
    throw ConfigError("memory.plan", plan,
                      what_applies(*solvers.front(), StepPlanner(timeless, step, cache)));
  }
  for (std::size_t k = 0; k < shapes.size(); ++k) {
    for (std::size_t e = 0; e < lean.entries.size(); ++e) {
      const LeanPlans::Entry& entry = lean.entries[e];
      const std::int64_t peak = peak_of(timeless, shapes[k].step, entry.schedule);
      if (peak >= lean.bytes) continue;
      lean.bytes = peak;
      lean.entry = e;
      lean.shape = k;
    }
  }
  return lean;
}

bool keeping_everything_fits(const ModelGraph& declared, const StepShape& step,
                             std::int64_t budget_bytes) {
  const StepSchedule all =
      same_for_all(stage_solvers().front().schedules(declared).front(), step.micro_batches);
  const std::vector<CommunicationShape> shapes = communication_shapes(step);
  return std::any_of(shapes.begin(), shapes.end(), [&](const auto& shape) {
    return peak_of(declared, shape.step, all) <= budget_bytes;
  });
}

void expect_budget(std::int64_t needed_bytes, std::int64_t budget_bytes, const std::string& plan,
                   const std::string& also) {
  if (budget_bytes >= needed_bytes) return;
  const std::string less = plan == "auto" ? "a smaller train.micro_batch or more data ranks with "
                                            "smaller micro-batches need less"
                                          : "that is for memory.plan = \"" + plan +
                                                "\"; use \"auto\", which may need less";
  throw PlanError(needed_bytes, budget_bytes, also.empty() ? less : also + "; " + less);
}

}  // namespace garonne::plan
