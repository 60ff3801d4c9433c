#include <algorithm>
#include <set>
#include <utility>

#include "plan/offload/moved_parts.hpp"
#include "plan/offload/mover.hpp"
#include "plan/offload/paging.hpp"
#include "plan/program/replay.hpp"

namespace garonne::plan {
namespace {

// Some of the groups, the largest first, stay where `spare` bytes are left for them.
std::vector<StateGroup> without_largest(std::vector<StateGroup> groups, std::int64_t spare) {
  std::vector<StateGroup> by_size = groups;
  std::stable_sort(by_size.begin(), by_size.end(),
                   [](const StateGroup& a, const StateGroup& b) { return a.bytes > b.bytes; });
  for (const StateGroup& group : by_size) {
    if (group.bytes > spare) continue;
    spare -= group.bytes;
    std::erase_if(groups, [&](const StateGroup& one) { return one.update == group.update; });
  }
  return groups;
}

}  // namespace

bool Mover::in_all_ways(const UseMoved& use) const {
  if (below_.activations &&
      use_it(with_activations(program_, budget_bytes_, {}, {}), " + offload", use))
    return true;
  if (!groups_.empty()) {
    if (use_fewest_states(use) || use_states_on_both(use)) return true;
    for (const std::size_t count : {groups_.size(), groups_.size() / 2}) {
      if (use_states_too(count, use)) return true;
    }
  }
  if (!is_paged()) return false;
  const std::vector<Unit> units = units_of(true);
  const std::vector<Unit> weights_first = units_of(false);
  for (const bool on_host : {false, true}) {
    if (on_host && !can_update_pages()) continue;
    for (const double share : {-1.0, 0.5, 1.0}) {
      if (share >= 0 && !below_.activations) continue;
      if (use_fewest({units, units.size(), share, on_host}, use)) return true;
    }
    if (below_.gradients && below_.weights &&
        use_fewest({weights_first, weights_first.size(), -1, on_host}, use))
      return true;
  }
  return false;
}

// Of what a tier's room decides.
Tier Mover::tier_in_part() const {
  const auto host = below_.tiers.find(Tier::Host);
  return host != below_.tiers.end() && host->second.budget_bytes > 0 ? Tier::Host : lowest();
}

bool Mover::in_part(const UseMoved& use) const {
  if (use_states_on_both(use)) return true;
  if (!below_.activations) return false;
  if (use_it(with_activations(program_, budget_bytes_, {}, {}), " + offload", use)) return true;
  for (const int part : {1, 2}) {
    std::size_t count = groups_.size();
    while (count > 0 && bytes_of_states(state_tier_, first_of(groups_, count)) >
                            below_.tiers.at(state_tier_).budget_bytes / part)
      --count;
    if (use_states_too(count, use)) return true;
  }
  if (!is_paged()) return false;
  const std::vector<Unit> units = units_of(true);
  const Tier tier = tier_in_part();
  std::size_t count = 0;
  std::int64_t bytes = 0;
  for (; count < units.size(); ++count) {
    bytes += bytes_below(tier, units[count].buffers);
    if (bytes > below_.tiers.at(tier).budget_bytes / 2) break;
  }
  if (count > 0 && use_units({units, count, 1, false}, use)) return true;
  return count > all_groups_.size() && can_update_pages() &&
         use_units({units, count, 1, true}, use);
}

bool Mover::use_states_on_both(const UseMoved& use) const {
  return std::any_of(gradient_copies.begin(), gradient_copies.end(), [&](GradientCopies when) {
    return use_it(with_states_on_both(when), " + states", use);
  });
}

// The first to be updated, whose way back others hide; and without the largest that need not go.
bool Mover::use_fewest_states(const UseMoved& use) const {
  for (const GradientCopies when : gradient_copies) {
    std::optional<Program> moved = with_states(program_, groups_, when);
    if (!moved) continue;
    const std::int64_t spare = budget_bytes_ - moved->peak_bytes;
    const std::vector<StateGroup> small = without_largest(groups_, spare);
    std::size_t too_few = 0;
    std::size_t enough = groups_.size();
    while (enough - too_few > 1) {
      const std::size_t middle = too_few + (enough - too_few) / 2;
      std::optional<Program> fewer = with_states(program_, first_of(groups_, middle), when);
      (fewer ? enough : too_few) = middle;
      if (fewer) moved = std::move(fewer);
    }
    if (use_it(std::move(moved), " + states", use)) return true;
    if (small.size() < groups_.size() &&
        use_it(with_states(program_, small, when), " + states", use))
      return true;
    if (state_tier_ != Tier::Host) break;  // where gradients do not go along
  }
  return false;
}

// Beside `count` groups of states.
bool Mover::use_states_too(std::size_t count, const UseMoved& use) const {
  if (count == 0 || !below_.activations) return false;
  const std::vector<StateGroup> groups = first_of(groups_, count);
  if (has_no_room(state_tier_, buffers_of(groups))) return false;
  const std::optional<Program> program =
      with_activations(program_, budget_bytes_ + bytes_of(program_, buffers_of(groups)),
                       {{state_tier_, bytes_of_states(state_tier_, groups)}}, {});
  if (!program) return false;
  for (const GradientCopies when : gradient_copies) {
    if (use_it(with_states(*program, groups, when), " + offload + states", use)) return true;
    if (state_tier_ != Tier::Host) break;
  }
  return false;
}

// Whatever else moves: what lasts there does so from the first place to the last.
bool Mover::has_no_room(Tier tier, const std::vector<int>& buffers) const {
  if (limits_ == nullptr) return false;
  std::int64_t bytes = 0;
  for (const int id : buffers) {
    const Buffer& buffer = program_.buffers[static_cast<std::size_t>(id)];
    if (buffer.live_at_start) bytes += buffer.bytes;
  }
  return bytes > limits_->at(tier).budget_bytes;
}

// By place, what is over the budget with the units of a choice away.
std::vector<std::int64_t> Mover::over_with(const Choice& choice) const {
  const Program& start = start_of(choice);
  std::vector<std::int64_t> over = replay(start).during_bytes;
  const std::vector<std::int64_t> idle = idle_bytes_of(start, choice);
  for (std::size_t place = 0; place < over.size(); ++place)
    over[place] -= idle[place] + budget_bytes_;
  return over;
}

std::size_t Mover::fewest_units(Choice choice, std::size_t at_least) const {
  std::size_t too_few = at_least - 1;
  std::size_t enough = choice.count + 1;
  while (enough - too_few > 1) {
    choice.count = too_few + (enough - too_few) / 2;
    const std::vector<std::int64_t> over = over_with(choice);
    const bool fits = std::none_of(over.begin(), over.end(), [](auto bytes) { return bytes > 0; });
    (fits ? enough : too_few) = choice.count;
  }
  return enough;
}

// The largest stay where the others are enough.
std::vector<Mover::Unit> Mover::needed_units(const Choice& choice) const {
  std::vector<std::int64_t> over = over_with(choice);
  std::vector<std::pair<std::int64_t, std::size_t>> by_size;
  for (std::size_t k = 0; k < choice.count; ++k)
    by_size.emplace_back(-bytes_of(program_, choice.units[k].buffers), k);
  std::sort(by_size.begin(), by_size.end());
  std::vector<bool> stays(choice.count, false);
  for (const auto& [bytes, k] : by_size) {
    const std::vector<std::int64_t> idle = idle_bytes(start_of(choice), choice.units[k].buffers);
    bool needless = true;
    for (std::size_t place = 0; place < over.size(); ++place)
      needless = needless && over[place] + idle[place] <= 0;
    if (!needless) continue;
    stays[k] = true;
    for (std::size_t place = 0; place < over.size(); ++place) over[place] += idle[place];
  }
  std::vector<Unit> needed;
  for (std::size_t k = 0; k < choice.count; ++k) {
    if (!stays[k]) needed.push_back(choice.units[k]);
  }
  return needed;
}

// The first of the units that are enough.
bool Mover::use_fewest(const Choice& choice, const UseMoved& use) const {
  // Those of states alone are another way where the host updates them.
  const std::size_t states = all_groups_.size();
  const std::size_t all = choice.units.size();
  if (all <= states) return false;
  // Each takes as long as a plan: not at all where others are the point.
  if (choice.share >= 0) return use_units(choice, use);
  Choice some = choice;
  some.count = fewest_units(choice, choice.updates_on_host ? states + 1 : 1);
  if (some.count > all) return false;
  if (!choice.updates_on_host) {
    const std::vector<Unit> needed = needed_units(some);
    if (use_units({needed, needed.size(), -1, false}, use)) return true;
    some.count = std::max(some.count, states + 1);
  }
  std::optional<Program> moved = with_units(some);
  // What is run with it, and updates on the host, may take more.
  while (!moved && some.count < all) {
    some.count += 1 + (all - some.count) / 2;
    moved = with_units(some);
  }
  return use_it(std::move(moved), how_of(some), use);
}

std::string Mover::how_of(const Choice& choice) {
  std::string how = choice.share < 0 ? "" : " + offload";
  std::set<std::string> named;
  for (std::size_t k = 0; k < choice.count; ++k) {
    if (named.insert(choice.units[k].kind).second) how += std::string(" + ") + choice.units[k].kind;
  }
  return how;
}

bool Mover::use_units(const Choice& choice, const UseMoved& use) const {
  const std::vector<int> buffers = buffers_of(choice.units, choice.count);
  if (!choice.updates_on_host && has_no_room(tier_of_pages(buffers), buffers)) return false;
  return use_it(with_units(choice), how_of(choice), use);
}

}  // namespace garonne::plan
