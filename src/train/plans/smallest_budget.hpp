// The smallest budget of a run: one number for whoever asks, before and after profiling.
//
// It is that of the leanest Programs by the bytes that nodes declare, which bound what a profile
// measures, in a pipeline of the stage that needs most where the model is cut by declared
// operations. So a run that is planned with measured costs fits every budget from there on, if need
// be with its stages cut as declared; and less is refused, whatever was measured.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "plan/offload/tier_planner.hpp"
#include "plan/stage/smallest_budget.hpp"
#include "train/setup/planning.hpp"

namespace garonne::train {

struct StageFloor {
  // Validation included, and what is reserved (train/plans/saving_plan.hpp); 0 where the budget
  // takes everything kept, so that nobody had to find out.
  std::int64_t bytes = 0;
  // Without the tiers below the device; 0 where there are none.
  std::int64_t on_device_bytes = 0;
  // By way of memory.allow, where the tiers may take several and all plans are compared: with that
  // one of them alone, and with all but that one.
  std::map<std::string, std::int64_t> bytes_by_way;
  std::map<std::string, std::int64_t> bytes_without_way;
  std::optional<plan::LeanPlans> lean;
  // Where there are tiers below the device.
  std::optional<plan::TierFloor> tiers;
  // The names of the stage's nodes as it is cut for this.
  std::vector<std::string> nodes;
};

// Of a stage and of memory.plan = `wanted`. `setup` is of all stages or of any; whether costs were
// applied to it makes no difference. Throws PlanError where `budget_bytes` are less than it takes,
// ConfigError as setup_of_stage() does and for an unknown plan.
StageFloor floor_of_stage(const Setup& setup, int stage, std::int64_t budget_bytes,
                          const std::string& wanted, Effort effort);

// The largest over the stages of `whole`, for memory.plan of its configuration. Errors as above but
// for PlanError.
std::int64_t smallest_budget(const Setup& whole);

// Plans a stage, or a whole model on one, as it is cut, within `budget_bytes` that are not below
// `floor`. That can fail for stages that were cut by their seconds, and where a node was measured
// to take more than it declares: PlanError with what is needed then, or ConfigError where `wanted`
// does not apply to the stage.
Choice choose_as_cut(const Setup& setup, const StageFloor& floor, std::int64_t budget_bytes,
                     const std::string& wanted, Effort effort);
// The same, none in place of these errors.
std::optional<Choice> choose_in_cut(const Setup& setup, const StageFloor& floor,
                                    std::int64_t budget_bytes, const std::string& wanted,
                                    Effort effort);

// A Program that another rank of the stage planned, as if this one had: its replay, and a
// validation beside it.
Choice choice_of_same_stage(const Setup& setup, plan::Program program, std::int64_t budget_bytes);

// What was planned elsewhere, in the place of a plan: its replay, and a validation beside it.
// Throws ConfigError where the two would not share their parameters or the validation does not fit.
Choice choice_of_given(const Setup& setup, plan::Program program, std::int64_t budget_bytes);

}  // namespace garonne::train
