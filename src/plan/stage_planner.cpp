#include "plan/stage_planner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "plan/liveness.hpp"
#include "plan/stage_solver.hpp"

namespace garonne::plan {
namespace {

// Beyond the second the link, not the latency, is what is waited for.
constexpr int most_gathers_ahead = 2;

// Keeps the best answers while candidates come in.
class Selection {
 public:
  Selection(const ModelGraph& graph, const StepShape& step, std::int64_t budget_bytes,
            std::int64_t reserved_bytes)
      : graph_(graph), step_(step), budget_bytes_(budget_bytes), reserved_bytes_(reserved_bytes) {
    plan_.minimum_budget_bytes = std::numeric_limits<std::int64_t>::max();
  }

  // Returns the replayed peak.
  std::int64_t consider(const std::string& name, const StepSchedule& schedule) {
    Program program = make_training_program(graph_, step_, schedule);
    Prediction prediction = replay(program);
    const std::int64_t needed = std::max(prediction.peak_bytes, reserved_bytes_);
    plan_.minimum_budget_bytes = std::min(plan_.minimum_budget_bytes, needed);
    const StageCandidate candidate{name, prediction.peak_bytes, prediction.seconds,
                                   needed <= budget_bytes_};
    note(candidate);
    const std::int64_t peak = prediction.peak_bytes;
    if (!candidate.fits || (found_ && !better(prediction, plan_.prediction))) return peak;
    found_ = true;
    program.name = name;
    program.budget_bytes = budget_bytes_;
    program.peak_bytes = prediction.peak_bytes;
    program.seconds = prediction.seconds;
    plan_.program = std::move(program);
    plan_.prediction = std::move(prediction);
    return peak;
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

// Every pass takes as long as any other.
ModelGraph with_equal_seconds(ModelGraph model) {
  for (auto& node : model.nodes) {
    for (OperationCost* const cost :
         {&node.forward, &node.forward_keep, &node.backward, &node.backward_weight})
      cost->seconds = 1;
  }
  return model;
}

// Asks one solver for the micro-batches of a step.
class StepPlanner {
 public:
  StepPlanner(const ModelGraph& model, const StepShape& step, const OptionCache& cache)
      : step_(step) {
    // Gradients are made in the first micro-batch and stay through the later ones.
    problems_.push_back(make_stage_problem(model, step, GradientBuckets::Made, cache));
    if (step.micro_batches > 1) {
      const auto later =
          step.reduce_each_micro_batch ? GradientBuckets::Made : GradientBuckets::There;
      problems_.push_back(make_stage_problem(model, step, later, cache));
    }
  }

  // None where the solver does not apply.
  std::optional<StepSchedule> leanest(const StageSolver& solver) const {
    std::vector<NodeSchedule> schedules;
    for (const auto& problem : problems_) {
      std::vector<NodeSchedule> candidates = solver.leanest(problem);
      if (candidates.empty()) return std::nullopt;
      const auto best =
          std::min_element(candidates.begin(), candidates.end(), [&](const auto& a, const auto& b) {
            return trace(problem, a).peak_bytes < trace(problem, b).peak_bytes;
          });
      schedules.push_back(std::move(*best));
    }
    return of_step(std::move(schedules));
  }

  // The fastest of its candidates within `budget_bytes`, static bytes included.
  std::optional<StepSchedule> fastest(const StageSolver& solver, std::int64_t budget_bytes,
                                      const StepSchedule& lean) const {
    std::vector<NodeSchedule> schedules;
    for (const auto& problem : problems_) {
      const std::int64_t budget = budget_bytes - problem.tasks.static_bytes;
      std::optional<NodeSchedule> best;
      double seconds = std::numeric_limits<double>::infinity();
      for (auto& candidate : solver.solve(problem, budget, lean.schedules[schedules.size()])) {
        const LivenessTrace traced = trace(problem, candidate);
        if (traced.peak_bytes > budget || traced.seconds >= seconds) continue;
        seconds = traced.seconds;
        best = std::move(candidate);
      }
      if (!best) return std::nullopt;
      schedules.push_back(std::move(*best));
    }
    return of_step(std::move(schedules));
  }

 private:
  static LivenessTrace trace(const StageProblem& problem, const NodeSchedule& schedule) {
    return trace_liveness(problem.tasks.graph, to_task_schedule(problem.tasks, schedule));
  }

  StepSchedule of_step(std::vector<NodeSchedule> schedules) const {
    StepSchedule step;
    step.of_micro_batch.assign(static_cast<std::size_t>(step_.micro_batches),
                               static_cast<int>(schedules.size()) - 1);
    step.of_micro_batch[0] = 0;
    step.schedules = std::move(schedules);
    return step;
  }

  const StepShape& step_;
  std::vector<StageProblem> problems_;
};

// Reductions in flight and the sums of the step are not in the tasks: where they push the Program
// over the budget, the solver is asked again with so much less.
constexpr int most_attempts = 5;

// In a pipeline several micro-batches are under way at once: what one of them may take is searched
// for.
constexpr int pipeline_attempts = 8;

void consider_in_pipeline(const StepPlanner& planner, const StageSolver& solver,
                          std::int64_t budget_bytes, const StepSchedule& lean,
                          Selection& selection) {
  std::int64_t too_little = 0;
  std::int64_t too_much = budget_bytes;
  std::int64_t target = budget_bytes;
  for (int attempt = 0; attempt < pipeline_attempts; ++attempt) {
    const auto schedule = planner.fastest(solver, target, lean);
    const bool fits = schedule && selection.consider(solver.name, *schedule) <= budget_bytes;
    if (fits && target == budget_bytes) return;
    (fits || !schedule ? too_little : too_much) = target;
    target = too_little + (too_much - too_little) / 2;
  }
}

void consider_solver(const StepPlanner& planner, const StageSolver& solver,
                     std::int64_t budget_bytes, const StepSchedule& lean, Selection& selection) {
  std::int64_t target = budget_bytes;
  for (int attempt = 0; attempt < most_attempts; ++attempt) {
    const auto schedule = planner.fastest(solver, target, lean);
    if (!schedule) return;
    const std::int64_t peak = selection.consider(solver.name, *schedule);
    if (peak <= budget_bytes) return;
    target -= peak - budget_bytes;
  }
}

std::vector<const StageSolver*> find_solvers(const std::string& wanted) {
  std::vector<const StageSolver*> solvers;
  std::string names = "auto";
  for (const auto& solver : stage_solvers()) {
    names += ", " + solver.name;
    if (wanted == "auto" || wanted == solver.name) solvers.push_back(&solver);
  }
  if (solvers.empty()) {
    throw ConfigError("memory.plan", wanted, "unknown plan; known are " + names);
  }
  return solvers;
}

StagePlan plan_shape(const ModelGraph& graph, const StepShape& step, const StageWish& wish) {
  const std::vector<const StageSolver*> solvers = find_solvers(wish.plan);
  Selection selection(graph, step, wish.budget_bytes, wish.reserved_bytes);
  // What is least must not depend on the budget: a plan that a search happens to find below it is
  // none, or the least would be a matter of what was asked before. Nor on what nodes cost: what is
  // promised where nothing is measured yet must do where everything is.
  const OptionCache cache(wish.cache_folder);
  const ModelGraph timeless = with_equal_seconds(graph);
  const StepPlanner lean_planner(timeless, step, cache);
  if (wish.first_that_fits && wish.plan == "auto") {
    // Nothing is faster than running nothing twice.
    const auto all = lean_planner.leanest(*solvers.front());
    selection.consider(solvers.front()->name, *all);
    if (selection.found()) return selection.take();
  }
  StepSchedule lean;
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (const StageSolver* solver : solvers) {
    auto leanest = lean_planner.leanest(*solver);
    if (!leanest) continue;
    const std::int64_t peak = selection.consider(solver->name, *leanest);
    if (peak >= least) continue;
    least = peak;
    lean = std::move(*leanest);
  }
  if (lean.schedules.empty()) {
    throw ConfigError("memory.plan", wish.plan,
                      "does not apply: no single value passes between the blocks of this stage; "
                      "use \"auto\", which plans any");
  }
  const std::int64_t minimum = selection.minimum_budget_bytes();
  if (wish.budget_bytes < minimum) {
    throw PlanError(minimum, wish.budget_bytes,
                    wish.plan == "auto" ? "a smaller train.micro_batch or more data ranks with "
                                          "smaller micro-batches need less"
                                        : "that is for memory.plan = \"" + wish.plan +
                                              "\"; use \"auto\", which may need less");
  }
  const StepPlanner planner(graph, step, cache);
  for (const StageSolver* solver : solvers) {
    if (step.pipeline.order.empty()) {
      consider_solver(planner, *solver, wish.budget_bytes, lean, selection);
    } else {
      consider_in_pipeline(planner, *solver, wish.budget_bytes, lean, selection);
    }
  }
  StagePlan plan = selection.take();
  plan.minimum_budget_bytes = minimum;
  return plan;
}

// The ways to communicate under ZeRO, the ones that hide more before those that hold less.
std::vector<std::pair<std::string, StepShape>> communication_shapes(const StepShape& step) {
  if (step.zero < 2 || step.data_group.size() < 2) return {{"", step}};
  std::vector<std::pair<std::string, StepShape>> shapes;
  const auto add = [&](bool each, int ahead, int in_flight) {
    StepShape shape = step;
    shape.reduce_each_micro_batch = each;
    shape.gathers_ahead = ahead;
    shape.reductions_in_flight = in_flight;
    std::string text;
    if (step.micro_batches > 1) {
      text += each ? ", gradients reduced in each micro-batch" : ", gradients reduced in the last";
    }
    if (step.zero == 3) text += fmt::format(", {} gathers ahead", ahead);
    if (in_flight != step.reductions_in_flight) {
      text += fmt::format(", {} reduction{} in flight", in_flight, in_flight == 1 ? "" : "s");
    }
    shapes.emplace_back(text, shape);
  };
  // In a pipeline micro-batches overlap: their sums are one.
  const bool several = step.micro_batches > 1 && step.pipeline.order.empty();
  for (const bool each : {false, true}) {
    if (each && !several) continue;
    for (int ahead = step.zero == 3 ? most_gathers_ahead : 0; ahead >= 0; --ahead)
      add(each, ahead, step.reductions_in_flight);
  }
  add(several, 0, 1);
  return shapes;
}

}  // namespace

StagePlan plan_stage(const ModelGraph& graph, const StepShape& step, const StageWish& wish) {
  const auto shapes = communication_shapes(step);
  if (shapes.size() == 1) return plan_shape(graph, step, wish);
  std::optional<StagePlan> best;
  std::vector<StageCandidate> candidates;
  std::int64_t minimum = std::numeric_limits<std::int64_t>::max();
  for (const bool everything_kept : {true, false}) {
    // As for one shape: where nothing need run twice nobody looks further.
    if (everything_kept && !(wish.first_that_fits && wish.plan == "auto")) continue;
    for (std::size_t k = 0; k < shapes.size(); ++k) {
      const auto& [text, shape] = shapes[k];
      // Searches take long: between the ends only what keeps everything is asked.
      if (!everything_kept && k > 0 && k + 1 < shapes.size() &&
          shape.reduce_each_micro_batch == shapes[k - 1].second.reduce_each_micro_batch) {
        continue;
      }
      StageWish asked = wish;
      if (everything_kept) asked.plan = stage_solvers().front().name;
      try {
        StagePlan plan = plan_shape(graph, shape, asked);
        minimum = std::min(minimum, plan.minimum_budget_bytes);
        plan.program.name += text;
        for (auto& candidate : plan.candidates) {
          candidate.name += text;
          candidates.push_back(std::move(candidate));
        }
        const auto key = [](const StagePlan& one) {
          return std::make_pair(one.prediction.seconds, one.prediction.peak_bytes);
        };
        if (!best || key(plan) < key(*best)) best = std::move(plan);
      } catch (const PlanError& error) {
        if (!everything_kept) minimum = std::min(minimum, error.needed_bytes());
      }
    }
    if (best) break;
  }
  if (!best) {
    throw PlanError(minimum, wish.budget_bytes,
                    "a smaller train.micro_batch or more data ranks need less");
  }
  best->candidates = std::move(candidates);
  best->minimum_budget_bytes = minimum;
  return std::move(*best);
}

std::vector<std::pair<std::string, std::string>> plan_names() {
  std::vector<std::pair<std::string, std::string>> names;
  for (const auto& solver : stage_solvers()) names.emplace_back(solver.name, solver.help);
  return names;
}

}  // namespace garonne::plan
