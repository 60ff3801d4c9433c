#include "plan/offload/mover.hpp"

#include <algorithm>
#include <utility>

#include "base/bytes.hpp"
#include "plan/offload/gradient_offload.hpp"
#include "plan/offload/host_update.hpp"
#include "plan/offload/moved_parts.hpp"
#include "plan/offload/offload.hpp"
#include "plan/offload/offload_search.hpp"
#include "plan/offload/paged_update.hpp"
#include "plan/offload/paging.hpp"
#include "plan/offload/weight_offload.hpp"
#include "plan/program/replay.hpp"

namespace garonne::plan {
namespace {

std::vector<std::int64_t> share_of(std::vector<std::int64_t> all, double share) {
  for (std::int64_t& bytes : all)
    bytes = static_cast<std::int64_t>(static_cast<double>(bytes) * share);
  return all;
}

}  // namespace

std::vector<StateGroup> movable_states(const Program& program, const LowerTiers& below) {
  return below.states ? state_groups(program, below.least_state_bytes) : std::vector<StateGroup>();
}

std::int64_t movable_bytes(const Program& program, const LowerTiers& below) {
  std::int64_t bytes = bytes_of(program, buffers_of(movable_states(program, below)));
  if (below.gradients)
    bytes += bytes_of(program, movable_gradients(program, below.least_state_bytes));
  if (below.weights) bytes += bytes_of(program, movable_weights(program, below.least_state_bytes));
  return bytes;
}

bool fits_tiers(const std::map<Tier, LowerTier>& tiers, const Prediction& prediction) {
  return std::all_of(tiers.begin(), tiers.end(), [&](const auto& tier) {
    return prediction.of(tier.first).peak_bytes <= tier.second.budget_bytes;
  });
}

Mover::Mover(const Program& program, const LowerTiers& below, std::int64_t budget_bytes,
             const Program* forward, const std::map<Tier, LowerTier>* limits)
    : program_(program),
      below_(below),
      budget_bytes_(budget_bytes),
      forward_(forward),
      limits_(limits),
      all_groups_(movable_states(program, below)),
      state_tier_(tier_of_states(all_groups_)),
      groups_(those_with_room(all_groups_)) {
  if (below.gradients) divided_ = with_divided_squares(program);
  for (const auto& [tier, one] : below.tiers) links_[tier] = one.links;
}

Tier Mover::tier_of_states(const std::vector<StateGroup>& all) const {
  const auto host = below_.tiers.find(Tier::Host);
  if (host == below_.tiers.end() || lowest() == Tier::Host) return lowest();
  return bytes_of_states(Tier::Host, all) <= host->second.budget_bytes ? Tier::Host : lowest();
}

// The first to be updated.
std::vector<StateGroup> Mover::those_with_room(std::vector<StateGroup> all) const {
  if (state_tier_ == Tier::Host) all = for_host(program_, std::move(all));
  while (!all.empty() &&
         bytes_of_states(state_tier_, all) > below_.tiers.at(state_tier_).budget_bytes)
    all.pop_back();
  return all;
}

// Of updates on the host all that they use is there.
std::int64_t Mover::bytes_of_states(Tier tier, const std::vector<StateGroup>& groups) const {
  std::int64_t bytes = 0;
  for (const StateGroup& group : groups) {
    const auto place = static_cast<std::size_t>(group.update);
    for (const int id : tier == Tier::Host ? program_.instructions[place].reads : group.buffers)
      bytes += round_up(program_.buffers[static_cast<std::size_t>(id)].bytes,
                        below_.tiers.at(tier).granularity);
  }
  return bytes;
}

std::vector<Mover::Unit> Mover::units_of(bool gradients_first) const {
  std::vector<Unit> units;
  for (const StateGroup& group : all_groups_) units.push_back({group.buffers, "states"});
  const auto add_gradients = [&] {
    if (!below_.gradients) return;
    for (const int id : movable_gradients(program_, below_.least_state_bytes))
      units.push_back({{id}, "gradients"});
  };
  if (gradients_first) add_gradients();
  if (below_.weights) {
    for (const int id : movable_weights(program_, below_.least_state_bytes))
      units.push_back({{id}, "weights"});
  }
  if (!gradients_first) add_gradients();
  return units;
}

std::int64_t Mover::least_bytes() const {
  if (is_paged()) {
    const std::int64_t on_device = least_bytes_of_pages(false);
    return can_update_pages() ? std::min(on_device, least_bytes_of_pages(true)) : on_device;
  }
  const std::int64_t without = below_.activations
                                   ? bytes_without_the_idle(program_, below_.least_bytes)
                                   : program_.peak_bytes;
  return without - bytes_of(program_, buffers_of(groups_));
}

std::int64_t Mover::least_bytes_of_pages(bool updates_on_host) const {
  const std::vector<Unit> units = units_of(true);
  const Choice choice{units, units.size(), -1, updates_on_host};
  const Program& program = start_of(choice);
  const std::vector<std::int64_t> idle = idle_bytes_of(program, choice);
  if (below_.activations) return bytes_without_the_idle(program, below_.least_bytes, idle);
  std::vector<std::int64_t> during = replay(program).during_bytes;
  for (std::size_t place = 0; place < idle.size(); ++place) during[place] -= idle[place];
  return during.empty() ? 0 : *std::max_element(during.begin(), during.end());
}

// By place: what the units of a choice make room for.
std::vector<std::int64_t> Mover::idle_bytes_of(const Program& program, const Choice& choice) const {
  if (!choice.updates_on_host) return idle_bytes(program, buffers_of(choice.units, choice.count));
  return idle_bytes_of_updates(program, pages_of(choice),
                               for_host(program, state_groups(program, below_.least_state_bytes)));
}

// Without states, which the host updates.
std::vector<int> Mover::pages_of(const Choice& choice) const {
  std::vector<int> pages = buffers_of(choice.units, choice.count);
  std::erase_if(pages, [&](int id) {
    const BufferKind kind = program_.buffers[static_cast<std::size_t>(id)].kind;
    return kind != BufferKind::Parameter && kind != BufferKind::Gradient;
  });
  return pages;
}

std::vector<MovedProgram> Mover::run() const {
  std::vector<MovedProgram> all;
  in_all_ways([&](MovedProgram moved) {
    all.push_back(std::move(moved));
    return false;
  });
  return all;
}

std::vector<MovedProgram> Mover::with_all_updates_on_host() const {
  std::vector<MovedProgram> all;
  if (all_groups_.empty()) add(program_, all);
  const bool has_room =
      state_tier_ == Tier::Host && groups_.size() == for_host(program_, all_groups_).size();
  for (const GradientCopies when : gradient_copies) {
    if (groups_.empty() || !has_room || !all.empty()) break;
    add(with_states(program_, groups_, when), all);
  }
  const std::vector<Unit> units = units_of(true);
  if (can_update_pages()) add(with_units({units, units.size(), -1, true}), all);
  return all;
}

std::vector<MovedProgram> Mover::with_everything_below() const {
  std::vector<MovedProgram> all;
  const std::vector<Unit> units = units_of(true);
  for (const bool on_host : {false, true}) {
    if (on_host && !can_update_pages()) continue;
    for (const double share : {-1.0, 0.5, 1.0})
      add(with_units({units, units.size(), share, on_host}), all);
  }
  return all;
}

std::vector<MovedProgram> Mover::with_idle_below(const std::vector<IdleTime>& idle,
                                                 const std::vector<int>& weights) const {
  std::vector<MovedProgram> all;
  const Tier tier = tier_of_pages(weights);
  // What the weights make room for, of what they can.
  for (const double share : {0.0, 0.5, 1.0}) {
    if (share > 0 && weights.empty()) break;
    OffloadRequest request{budget_bytes_, below_.tiers, below_.least_bytes};
    if (share > 0) {
      request.tiers.at(tier).budget_bytes -= bytes_below(tier, weights);
      request.more_bytes = share_of(idle_bytes(program_, weights), share);
    }
    const auto offloads = place_offloads(program_, request, idle);
    if (!offloads) continue;
    Program lean = offloads->empty() ? program_ : with_offloads(program_, *offloads, links_);
    if (share == 0) {
      add(std::move(lean), all);
    } else {
      add(with_paging(std::move(lean), weights, tier, links_.at(tier), budget_bytes_), all);
    }
  }
  return all;
}

bool Mover::use_it(std::optional<Program> program, const std::string& how,
                   const UseMoved& use) const {
  if (!program) return false;
  Prediction prediction = replay(*program);
  if (!fits_tiers(below_.tiers, prediction)) return false;
  const std::optional<std::int64_t> reserved = reserved_by(*program);
  return reserved && use({std::move(*program), how, *reserved, std::move(prediction)});
}

void Mover::add(std::optional<Program> program, std::vector<MovedProgram>& all) const {
  use_it(std::move(program), "", [&](MovedProgram moved) {
    all.push_back(std::move(moved));
    return false;
  });
}

// Nothing where it does not fit with it.
std::optional<std::int64_t> Mover::reserved_by(const Program& program) const {
  if (forward_ == nullptr) return 0;
  const auto placed = with_lasting_as(*forward_, program, links_, budget_bytes_);
  if (!placed || placed->peak_bytes > budget_bytes_) return std::nullopt;
  return placed->peak_bytes;
}

bool Mover::fits_below(const Program& program) const {
  return fits_tiers(below_.tiers, replay(program));
}

std::optional<Program> Mover::checked(std::optional<Program> program) const {
  if (program && (!fits_below(*program) || !reserved_by(*program))) return std::nullopt;
  return program;
}

std::int64_t Mover::bytes_below(Tier tier, const std::vector<int>& buffers) const {
  std::int64_t bytes = 0;
  for (const int id : buffers) {
    bytes += round_up(program_.buffers[static_cast<std::size_t>(id)].bytes,
                      below_.tiers.at(tier).granularity);
  }
  return bytes;
}

// Where all of them fit on the host, there.
Tier Mover::tier_of_pages(const std::vector<int>& buffers) const {
  const auto host = below_.tiers.find(Tier::Host);
  const bool fits =
      host != below_.tiers.end() && bytes_below(Tier::Host, buffers) <= host->second.budget_bytes;
  return fits ? Tier::Host : lowest();
}

// Nothing where none has to move.
std::optional<Program> Mover::with_activations(const Program& program, std::int64_t budget_bytes,
                                               const std::map<Tier, std::int64_t>& taken,
                                               std::vector<std::int64_t> more_bytes) const {
  if (budget_bytes < bytes_without_the_idle(program, below_.least_bytes, more_bytes))
    return std::nullopt;
  OffloadRequest request{budget_bytes, below_.tiers, below_.least_bytes, std::move(more_bytes)};
  for (const auto& [tier, bytes] : taken) request.tiers.at(tier).budget_bytes -= bytes;
  const auto offloads = choose_offloads(program, request);
  if (!offloads || offloads->empty()) return std::nullopt;
  return with_offloads(program, *offloads, links_);
}

std::optional<Program> Mover::with_states(const Program& program,
                                          const std::vector<StateGroup>& wanted,
                                          GradientCopies when) const {
  // Others than in program_ may be in their places.
  std::vector<StateGroup> all = state_groups(program, below_.least_state_bytes);
  if (state_tier_ == Tier::Host) all = for_host(program, std::move(all));
  std::erase_if(all, [&](const StateGroup& group) {
    return std::none_of(wanted.begin(), wanted.end(), [&](const StateGroup& one) {
      return one.buffers.front() == group.buffers.front();
    });
  });
  const TierLinks& links = links_.at(state_tier_);
  if (state_tier_ != Tier::Host)
    return checked(with_states_below(program, all, state_tier_, links, budget_bytes_));
  const double rate = below_.tiers.at(Tier::Host).update_bytes_per_second;
  Program moved = with_updates_on_host(program, all, links, rate, when);
  if (moved.peak_bytes > budget_bytes_) return std::nullopt;
  return checked(std::move(moved));
}

// As many as the host has room for, where they are updated, the rest on the tier below it.
std::optional<Program> Mover::with_states_on_both(GradientCopies when) const {
  const auto host = below_.tiers.find(Tier::Host);
  if (host == below_.tiers.end() || state_tier_ == Tier::Host) return std::nullopt;
  std::vector<StateGroup> groups = for_host(program_, all_groups_);
  while (!groups.empty() && bytes_of_states(Tier::Host, groups) > host->second.budget_bytes)
    groups.pop_back();
  if (groups.empty()) return std::nullopt;
  const double rate = host->second.update_bytes_per_second;
  Program moved = with_updates_on_host(program_, groups, links_.at(Tier::Host), rate, when);
  const std::vector<StateGroup> rest = state_groups(moved, below_.least_state_bytes);
  return checked(with_states_below(std::move(moved), rest, state_tier_, links_.at(state_tier_),
                                   budget_bytes_));
}

bool Mover::can_update_pages() const {
  const auto host = below_.tiers.find(Tier::Host);
  if (!is_paged() || host == below_.tiers.end()) return false;
  const std::vector<StateGroup> groups = for_host(program_, all_groups_);
  return !groups.empty() && bytes_of(program_, buffers_of(groups)) <= host->second.budget_bytes;
}

// Where gradients move, the one that needs not all of them at once.
const Program& Mover::start_of(const Choice& choice) const {
  const auto moves_gradients = [&](const Unit& unit) {
    return !unit.buffers.empty() &&
           program_.buffers[static_cast<std::size_t>(unit.buffers[0])].kind == BufferKind::Gradient;
  };
  const auto last = choice.units.begin() + static_cast<std::ptrdiff_t>(choice.count);
  return std::any_of(choice.units.begin(), last, moves_gradients) ? divided_ : program_;
}

std::optional<Program> Mover::with_units(const Choice& choice) const {
  const Program& start = start_of(choice);
  const std::vector<int> buffers = buffers_of(choice.units, choice.count);
  const Tier tier = choice.updates_on_host ? Tier::Host : tier_of_pages(buffers);
  if (choice.share < 0) return checked(with_pages(start, choice, tier));
  const std::optional<Program> lean =
      with_activations(start, budget_bytes_, {{tier, bytes_below(tier, buffers)}},
                       share_of(idle_bytes_of(start, choice), choice.share));
  return lean ? checked(with_pages(*lean, choice, tier)) : std::nullopt;
}

std::optional<Program> Mover::with_pages(const Program& program, const Choice& choice,
                                         Tier tier) const {
  const TierLinks& links = links_.at(tier);
  if (!choice.updates_on_host) {
    const std::vector<int> buffers = buffers_of(choice.units, choice.count);
    return with_paging(program, buffers, tier, links, budget_bytes_);
  }
  auto moved = with_paged_updates(
      program, pages_of(choice), for_host(program, state_groups(program, below_.least_state_bytes)),
      links, below_.tiers.at(tier).update_bytes_per_second, budget_bytes_);
  if (moved && moved->peak_bytes > budget_bytes_) return std::nullopt;
  return moved;
}

}  // namespace garonne::plan
