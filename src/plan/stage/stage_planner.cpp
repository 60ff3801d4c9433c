#include "plan/stage/stage_planner.hpp"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "plan/model/communication_shape.hpp"
#include "plan/step/program_within.hpp"
#include "plan/step/step_planner.hpp"

namespace garonne::plan {
namespace {

// Keeps the best answers while candidates come in.
class Selection {
 public:
  Selection(const ModelGraph& graph, const StepShape& step, std::int64_t budget_bytes,
            std::int64_t reserved_bytes)
      : graph_(graph), step_(step), budget_bytes_(budget_bytes), reserved_bytes_(reserved_bytes) {}

  struct Replayed {
    std::int64_t peak_bytes = 0;    // with one reduction under way
    std::int64_t wanted_bytes = 0;  // for more of them
  };
  Replayed consider(const std::string& name, const StepSchedule& schedule) {
    ProgramWithin made = make_program_within(graph_, step_, schedule, budget_bytes_);
    const Replayed replayed{made.least_bytes, made.wanted_bytes};
    const std::int64_t needed = std::max(made.prediction.peak_bytes, reserved_bytes_);
    least_bytes_ = std::min(least_bytes_, made.least_bytes);
    const StageCandidate candidate{name, made.prediction.peak_bytes, made.prediction.seconds,
                                   needed <= budget_bytes_};
    note_candidate(candidate, plan_.candidates);
    if (candidate.fits) note_schedule(name, made.prediction.seconds, schedule);
    if (!candidate.fits || (found_ && !better(made.prediction, plan_.prediction))) return replayed;
    found_ = true;
    made.program.name = name;
    made.program.tier(Tier::Device).budget_bytes = budget_bytes_;
    made.program.peak_bytes = made.prediction.peak_bytes;
    made.program.seconds = made.prediction.seconds;
    plan_.program = std::move(made.program);
    plan_.prediction = std::move(made.prediction);
    return replayed;
  }

  bool found() const { return found_; }
  // Of each name, the fastest that fits.
  struct Fitting {
    std::string name;
    double seconds = 0;
    StepSchedule schedule;
  };
  const std::vector<Fitting>& fitting() const { return fitting_; }
  StagePlan take() { return std::move(plan_); }
  // The lowest peak so far.
  std::int64_t least_bytes() const { return least_bytes_; }

 private:
  static bool better(const Prediction& a, const Prediction& b) {
    return std::make_pair(a.seconds, a.peak_bytes) < std::make_pair(b.seconds, b.peak_bytes);
  }

  void note_schedule(const std::string& name, double seconds, const StepSchedule& schedule) {
    const auto known = std::find_if(fitting_.begin(), fitting_.end(),
                                    [&](const Fitting& other) { return other.name == name; });
    if (known == fitting_.end()) {
      fitting_.push_back({name, seconds, schedule});
    } else if (seconds < known->seconds) {
      *known = {name, seconds, schedule};
    }
  }

  const ModelGraph& graph_;
  const StepShape& step_;
  std::int64_t budget_bytes_;
  std::int64_t reserved_bytes_;
  StagePlan plan_;
  std::vector<Fitting> fitting_;
  std::int64_t least_bytes_ = std::numeric_limits<std::int64_t>::max();
  bool found_ = false;
};

// Reductions in flight and the sums of the step are not in the tasks: where they push the Program
// over the budget, the solver is asked again with so much less.
constexpr int most_attempts = 5;

// In a pipeline several micro-batches are under way at once: what one of them may take is searched
// for.
constexpr int pipeline_attempts = 8;

// More reductions under way may be worth more than what `target` bytes keep.
void consider_with_room(const StepPlanner& planner, const StageSolver& solver, std::int64_t target,
                        std::int64_t wanted_bytes, const StepSchedule& lean, Selection& selection) {
  if (wanted_bytes == 0) return;
  const auto schedule = planner.fastest(solver, target - wanted_bytes, lean);
  if (schedule) selection.consider(solver.name, *schedule);
}

void consider_in_pipeline(const StepPlanner& planner, const StageSolver& solver,
                          std::int64_t budget_bytes, const StepSchedule& lean,
                          Selection& selection) {
  std::int64_t too_little = 0;
  std::int64_t too_much = budget_bytes;
  std::int64_t target = budget_bytes;
  std::int64_t wanted = 0;  // with the most that fits
  for (int attempt = 0; attempt < pipeline_attempts; ++attempt) {
    const auto schedule = planner.fastest(solver, target, lean);
    const auto replayed =
        schedule ? selection.consider(solver.name, *schedule) : Selection::Replayed();
    const bool fits = schedule && replayed.peak_bytes <= budget_bytes;
    if (fits) wanted = replayed.wanted_bytes;
    (fits || !schedule ? too_little : too_much) = target;
    if (fits && target == budget_bytes) break;
    target = too_little + (too_much - too_little) / 2;
  }
  consider_with_room(planner, solver, too_little, wanted, lean, selection);
}

// Where not all micro-batches of a pipeline can keep everything some of them may: fewer are under
// way at its ends. Each is a Program more to look at. What is fastest without them need not be with
// them: a schedule that keeps less leaves room for more of them.
constexpr int most_mixed_micro_batches = 16;

void consider_some_kept(const ModelGraph& graph, const StepShape& step, std::int64_t budget_bytes,
                        Selection& selection) {
  const StageSolver& keeps = stage_solvers().front();
  if (step.micro_batches > most_mixed_micro_batches) return;
  const std::vector<Selection::Fitting> fitting = selection.fitting();
  // Nothing is faster than running nothing twice.
  for (const Selection::Fitting& beside : fitting) {
    if (beside.name == keeps.name) return;
  }
  const NodeSchedule everything = keeps.schedules(graph).front();
  for (const Selection::Fitting& beside : fitting) {
    StepSchedule mixed = beside.schedule;
    const int kept = static_cast<int>(mixed.schedules.size());
    mixed.schedules.push_back(everything);
    for (auto which = mixed.of_micro_batch.rbegin(); which != mixed.of_micro_batch.rend();
         ++which) {
      const int before = std::exchange(*which, kept);
      if (selection.consider(beside.name, mixed).peak_bytes > budget_bytes) *which = before;
    }
  }
}

void consider_solver(const StepPlanner& planner, const StageSolver& solver,
                     std::int64_t budget_bytes, const StepSchedule& lean, Selection& selection) {
  std::int64_t target = budget_bytes;
  for (int attempt = 0; attempt < most_attempts; ++attempt) {
    const auto schedule = planner.fastest(solver, target, lean);
    if (!schedule) return;
    const auto [peak, wanted] = selection.consider(solver.name, *schedule);
    if (peak <= budget_bytes)
      return consider_with_room(planner, solver, target, wanted, lean, selection);
    target -= peak - budget_bytes;
  }
}

// Of several ways to communicate, only the outermost are searched: searches take long.
bool is_searched(const std::vector<CommunicationShape>& shapes, std::size_t k) {
  return k == 0 || k + 1 == shapes.size() ||
         shapes[k].step.messages_first != shapes[k + 1].step.messages_first;
}

class StageSearch {
 public:
  StageSearch(const ModelGraph& graph, const StepShape& step, const StageRequest& wish)
      : graph_(graph),
        wish_(wish),
        solvers_(find_solvers(wish.plan)),
        shapes_(communication_shapes(step)) {}

  // Nothing is faster than running nothing twice.
  void keep_everything() {
    const StepSchedule all = same_for_all(stage_solvers().front().schedules(graph_).front(),
                                          shapes_[0].step.micro_batches);
    for (const auto& shape : shapes_) {
      if (best_ && !shape.step.messages_first) continue;
      Selection selection = make_selection(shape);
      selection.consider(stage_solvers().front().name, all);
      take(std::move(selection), shape);
    }
  }

  void search(const LeanPlans& lean) {
    for (std::size_t k = 0; k < shapes_.size(); ++k) {
      // A stage by itself may be faster with its reductions first; those that wait for it are not.
      if (best_ && !shapes_[k].step.messages_first) continue;
      Selection selection = make_selection(shapes_[k]);
      if (is_searched(shapes_, k)) {
        search(shapes_[k], lean, selection);
      } else {
        for (std::size_t e = 0; e < lean.entries.size(); ++e) {
          const LeanPlans::Entry& entry = lean.entries[e];
          const bool everything = entry.solver == &stage_solvers().front();
          const bool leanest = k == lean.shape && e == lean.entry;
          if (everything || leanest) selection.consider(entry.solver->name, entry.schedule);
        }
      }
      take(std::move(selection), shapes_[k]);
    }
  }

  bool found() const { return best_.has_value(); }
  std::int64_t least_bytes() const { return least_bytes_; }
  StagePlan take() {
    best_->candidates = std::move(candidates_);
    return std::move(*best_);
  }

 private:
  Selection make_selection(const CommunicationShape& shape) const {
    return {graph_, shape.step, wish_.budget_bytes, wish_.reserved_bytes};
  }

  void search(const CommunicationShape& shape, const LeanPlans& lean, Selection& selection) const {
    const StepSchedule* start = nullptr;
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    for (const auto& entry : lean.entries) {
      const std::int64_t peak = selection.consider(entry.solver->name, entry.schedule).peak_bytes;
      if (peak >= least) continue;
      least = peak;
      start = &entry.schedule;
    }
    // What is least must not depend on the budget: a plan that a search happens to find below it is
    // none, or the least would be a matter of what was asked before.
    if (!selection.found() || start == nullptr) return;
    const StepPlanner planner(graph_, shape.step, wish_.cache);
    for (const StageSolver* solver : solvers_) {
      if (shape.step.pipeline.order.empty()) {
        consider_solver(planner, *solver, wish_.budget_bytes, *start, selection);
      } else {
        consider_in_pipeline(planner, *solver, wish_.budget_bytes, *start, selection);
      }
    }
    if (wish_.plan == "auto" && !shape.step.pipeline.order.empty())
      consider_some_kept(graph_, shape.step, wish_.budget_bytes, selection);
  }

  void take(Selection selection, const CommunicationShape& shape) {
    least_bytes_ = std::min(least_bytes_, selection.least_bytes());
    const bool found = selection.found();
    StagePlan plan = selection.take();
    for (auto& candidate : plan.candidates) {
      candidate.name += shape.text;
      candidates_.push_back(std::move(candidate));
    }
    if (!found) return;
    plan.program.name += shape.text;
    const auto key = [](const StagePlan& one) {
      return std::make_pair(one.prediction.seconds, one.prediction.peak_bytes);
    };
    if (!best_ || key(plan) < key(*best_)) best_ = std::move(plan);
  }

  const ModelGraph& graph_;
  const StageRequest& wish_;
  std::vector<const StageSolver*> solvers_;
  std::vector<CommunicationShape> shapes_;
  std::optional<StagePlan> best_;
  std::vector<StageCandidate> candidates_;
  std::int64_t least_bytes_ = std::numeric_limits<std::int64_t>::max();
};

}  // namespace

void note_candidate(const StageCandidate& candidate, std::vector<StageCandidate>& candidates) {
  const auto known = std::find_if(candidates.begin(), candidates.end(),
                                  [&](const auto& other) { return other.name == candidate.name; });
  if (known == candidates.end()) {
    candidates.push_back(candidate);
    return;
  }
  const bool replaces = candidate.fits != known->fits
                            ? candidate.fits
                            : (candidate.fits ? candidate.seconds < known->seconds
                                              : candidate.peak_bytes < known->peak_bytes);
  if (replaces) *known = candidate;
}

StagePlan plan_stage(const ModelGraph& graph, const StepShape& step, const StageRequest& wish) {
  const auto minimum_of = [&](const LeanPlans& lean) {
    const std::int64_t minimum = std::max(lean.bytes, wish.reserved_bytes);
    expect_budget(minimum, wish.budget_bytes, wish.plan);
    return minimum;
  };
  std::int64_t minimum = wish.lean == nullptr ? 0 : minimum_of(*wish.lean);
  if (wish.first_that_fits && wish.plan == "auto") {
    StageSearch quick(graph, step, wish);
    quick.keep_everything();
    if (quick.found()) {
      StagePlan plan = quick.take();
      plan.minimum_budget_bytes = minimum;
      return plan;
    }
  }
  std::optional<LeanPlans> own;
  if (wish.lean == nullptr) own = find_lean_plans(graph, step, wish.plan, wish.cache);
  const LeanPlans& lean = own ? *own : *wish.lean;
  if (own) minimum = minimum_of(lean);
  StageSearch search(graph, step, wish);
  search.search(lean);
  if (!search.found()) {
    throw PlanError(std::max(search.least_bytes(), wish.reserved_bytes), wish.budget_bytes,
                    "operations were measured to take more scratch memory than they declare");
  }
  StagePlan plan = search.take();
  plan.minimum_budget_bytes = minimum;
  return plan;
}

std::vector<std::pair<std::string, std::string>> plan_names() {
  std::vector<std::pair<std::string, std::string>> names;
  for (const auto& solver : stage_solvers()) names.emplace_back(solver.name, solver.help);
  return names;
}

}  // namespace garonne::plan
