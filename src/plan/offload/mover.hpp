// What a finished Program moves to the tiers below the device so that it is within a budget, in as
// many ways as are worth a comparison.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "plan/offload/host_update.hpp"
#include "plan/offload/offload.hpp"
#include "plan/offload/state_offload.hpp"
#include "plan/offload/tier_planner.hpp"
#include "plan/program/program.hpp"
#include "plan/program/replay.hpp"

namespace garonne::plan {

// Of states that may move: the groups of a Program, in the order of its updates.
std::vector<StateGroup> movable_states(const Program& program, const LowerTiers& below);

// Bytes of all that lasts, or is a gradient, and may move: what paging may take off at most.
std::int64_t movable_bytes(const Program& program, const LowerTiers& below);

// Whether what is there fits each of the tiers.
bool fits_tiers(const std::map<Tier, LowerTier>& tiers, const Prediction& prediction);

// With so much below that it is within a budget of the device.
struct MovedProgram {
  Program program;
  std::string how;  // for the name
  // What the other Program of the rank needs that has its state where this one has it.
  std::int64_t reserved_bytes = 0;
  Prediction prediction;
};

// Of what is moved in one way; true: no further one is wanted.
using UseMoved = std::function<bool(MovedProgram)>;

class Mover {
 public:
  // `forward`: what else the rank runs with the state where the Program has it; null: nothing.
  // `limits`: of what tiers have room for, where `below` has more: ways that are seen to need more
  // may be left out; null: none are. All outlive the mover.
  Mover(const Program& program, const LowerTiers& below, std::int64_t budget_bytes,
        const Program* forward, const std::map<Tier, LowerTier>* limits = nullptr);

  // What the device holds at least when all that may move and is idle is away.
  std::int64_t least_bytes() const;
  // All ways that are worth a comparison where tiers have room for all that moves; none where
  // nothing has to move, or where that is not enough. Whether a use wanted no further one.
  bool in_all_ways(const UseMoved& use) const;
  // The same as a list.
  std::vector<MovedProgram> run() const;
  // Those of which a tier's room decides how much of what is where, and half of it is for what
  // lasts and gradients. Returns as above.
  bool in_part(const UseMoved& use) const;

  // What policies do (plan/offload/offload_policy.hpp), whether it has to be or not; none where a
  // tier or the budget has no room for it.
  //
  // All masters and states whose updates the host can take are there; gradients stay on the device
  // until then, or leave when they are complete.
  std::vector<MovedProgram> with_all_updates_on_host() const;
  // All that lasts, and gradients, are on one tier between their uses; of values and records what
  // the budget has no room for.
  std::vector<MovedProgram> with_everything_below() const;
  // Of these idle times, and of these parameters between their uses, those that have to.
  std::vector<MovedProgram> with_idle_below(const std::vector<IdleTime>& idle,
                                            const std::vector<int>& weights) const;

 private:
  // What leaves together, and what it is called.
  struct Unit {
    std::vector<int> buffers;
    const char* kind = "";
  };
  // Some units, the first of those of the mover in its order or in another one.
  struct Choice {
    const std::vector<Unit>& units;
    std::size_t count = 0;
    // Of what the units can make room for, how much activations leave to them; none of these where
    // negative.
    double share = -1;
    // The states never move: the host updates them, from the pages that it has.
    bool updates_on_host = false;
  };

  bool use_it(std::optional<Program> program, const std::string& how, const UseMoved& use) const;
  bool use_fewest_states(const UseMoved& use) const;
  bool use_fewest(const Choice& choice, const UseMoved& use) const;
  static std::string how_of(const Choice& choice);
  bool use_units(const Choice& choice, const UseMoved& use) const;
  bool use_states_on_both(const UseMoved& use) const;
  bool use_states_too(std::size_t count, const UseMoved& use) const;
  void add(std::optional<Program> program, std::vector<MovedProgram>& all) const;
  std::vector<std::int64_t> over_with(const Choice& choice) const;
  // Of the units of a choice the fewest that leave no more than the budget, by bytes alone; their
  // count and one where all are too few.
  std::size_t fewest_units(Choice choice, std::size_t at_least) const;
  std::vector<Unit> needed_units(const Choice& choice) const;
  bool has_no_room(Tier tier, const std::vector<int>& buffers) const;
  Tier tier_in_part() const;
  Tier lowest() const { return below_.tiers.rbegin()->first; }
  Tier tier_of_states(const std::vector<StateGroup>& all) const;
  std::vector<StateGroup> those_with_room(std::vector<StateGroup> all) const;
  std::int64_t bytes_of_states(Tier tier, const std::vector<StateGroup>& groups) const;
  bool is_paged() const { return below_.weights || below_.gradients; }
  // Whether the host may have pages and update states beside them.
  bool can_update_pages() const;
  const Program& start_of(const Choice& choice) const;
  std::vector<int> pages_of(const Choice& choice) const;
  std::vector<std::int64_t> idle_bytes_of(const Program& program, const Choice& choice) const;
  std::int64_t least_bytes_of_pages(bool updates_on_host) const;
  std::vector<Unit> units_of(bool gradients_first) const;
  std::int64_t bytes_below(Tier tier, const std::vector<int>& buffers) const;
  Tier tier_of_pages(const std::vector<int>& buffers) const;
  bool fits_below(const Program& program) const;
  std::optional<std::int64_t> reserved_by(const Program& program) const;
  std::optional<Program> checked(std::optional<Program> program) const;
  // `taken`: bytes of tiers that something else has.
  std::optional<Program> with_activations(const Program& program, std::int64_t budget_bytes,
                                          const std::map<Tier, std::int64_t>& taken,
                                          std::vector<std::int64_t> more_bytes) const;
  std::optional<Program> with_states(const Program& program, const std::vector<StateGroup>& wanted,
                                     GradientCopies when) const;
  std::optional<Program> with_states_on_both(GradientCopies when) const;
  std::optional<Program> with_units(const Choice& choice) const;
  std::optional<Program> with_pages(const Program& program, const Choice& choice, Tier tier) const;

  const Program& program_;
  const LowerTiers& below_;
  const std::int64_t budget_bytes_;
  const Program* forward_;
  const std::map<Tier, LowerTier>* limits_;
  const std::vector<StateGroup> all_groups_;
  const Tier state_tier_;                 // of those that are moved by themselves
  const std::vector<StateGroup> groups_;  // those of them for which it has room
  Program divided_;                       // where gradients may move
  std::map<Tier, TierLinks> links_;
};

}  // namespace garonne::plan
