// The candidates of a stage with tiers below it, and the best of them; what planners of such stages
// share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "plan/model/communication_shape.hpp"
#include "plan/offload/mover.hpp"
#include "plan/offload/tier_planner.hpp"

namespace garonne::plan {

void set_tiers(const std::map<Tier, LowerTier>& tiers, Program& program);

// A lean schedule in one of its shapes.
StagePlan lean_plan(const ModelGraph& graph, const CommunicationShape& shape,
                    const LeanPlans::Entry& entry);

// Of a Program and what the same rank runs with it, on the device.
std::int64_t whole_bytes(const Program& program, const Program* forward);

// No plan of the wish takes less. Of ranks that wait for others what they compute and copy alone is
// counted; 0 where passes run beside collectives, of which nothing is known.
double least_seconds_of(const ModelGraph& graph, const StepShape& step, const TierRequest& wish);

// The least with which it fits, where `enough` is, and less than `at_least` is not. Something that
// is no less than `of_interest` where that is not less.
template <typename Fits>
std::int64_t least_that_fits(std::int64_t at_least, std::int64_t enough, const Fits& fits,
                             std::int64_t of_interest = std::numeric_limits<std::int64_t>::max()) {
  if (fits(at_least)) return at_least;
  std::int64_t too_little = at_least;
  while (enough - too_little > cpu_allocation_granularity && too_little < of_interest) {
    const std::int64_t middle =
        too_little + round_up((enough - too_little) / 2, cpu_allocation_granularity);
    (fits(middle) ? enough : too_little) = middle;
  }
  return enough;
}

class TierSelection {
 public:
  // The wish outlives the selection. What takes longer than `useless_seconds` is not looked for.
  explicit TierSelection(const TierRequest& wish,
                         double useless_seconds = std::numeric_limits<double>::infinity())
      : wish_(wish), useless_seconds_(useless_seconds) {}

  void start(StagePlan plan) { best_ = std::move(plan); }
  // All that the mover makes of a plan, for the wish's budget or a smaller one.
  void consider(StagePlan without) { consider(std::move(without), wish_.stage.budget_bytes); }
  void consider(StagePlan without, std::int64_t budget_bytes);
  // Called `name` and how they were moved.
  void add(const std::string& name, std::vector<MovedProgram> all);
  // All that another selection of the same wish has considered, as if it came here now.
  void add(TierSelection later);

  bool found() const { return best_.has_value(); }
  // Of the best one; without end where none is.
  double seconds() const;
  StagePlan take();

 private:
  std::optional<StagePlan> rotation_of(const Program& program) const;
  void choose(StagePlan plan, std::int64_t reserved_bytes);
  void take_if_better(StagePlan plan);

  const TierRequest& wish_;
  const double useless_seconds_;
  std::optional<StagePlan> best_;
  std::vector<StageCandidate> candidates_;
};

}  // namespace garonne::plan
