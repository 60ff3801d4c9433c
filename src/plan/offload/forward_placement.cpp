#include "plan/offload/forward_placement.hpp"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "plan/offload/tier_selection.hpp"
#include "plan/offload/weight_offload.hpp"
#include "plan/program/replay.hpp"

namespace garonne::plan {
namespace {

// What lasts and may move: masters, which no pass reads, then the largest parameters.
std::vector<int> movable(const Program& program) {
  std::vector<int> found;
  for (std::size_t id = 0; id < program.buffers.size(); ++id) {
    const Buffer& buffer = program.buffers[id];
    const bool is_parameter =
        buffer.kind == BufferKind::Parameter || buffer.kind == BufferKind::MasterParameter;
    if (is_parameter && buffer.live_at_start && buffer.live_at_end && buffer.bytes > 0)
      found.push_back(static_cast<int>(id));
  }
  std::stable_sort(found.begin(), found.end(), [&](int one, int other) {
    const auto key = [&](int id) {
      const Buffer& buffer = program.buffers[static_cast<std::size_t>(id)];
      return std::pair(buffer.kind != BufferKind::MasterParameter, -buffer.bytes);
    };
    return key(one) < key(other);
  });
  return found;
}

// The first `count` of them, each on the uppermost tier that has room.
std::map<Tier, std::vector<int>> places_of(const std::map<Tier, LowerTier>& tiers,
                                           const Program& program, const std::vector<int>& buffers,
                                           std::size_t count) {
  std::map<Tier, std::int64_t> taken;
  std::map<Tier, std::vector<int>> places;
  for (std::size_t i = 0; i < count; ++i) {
    const std::int64_t bytes = program.buffers[static_cast<std::size_t>(buffers[i])].bytes;
    for (auto tier = tiers.begin(); tier != tiers.end(); ++tier) {
      const std::int64_t wanted = round_up(bytes, tier->second.granularity);
      const bool has_room = taken[tier->first] + wanted <= tier->second.budget_bytes;
      if (!has_room && std::next(tier) != tiers.end()) continue;
      taken[tier->first] += wanted;
      places[tier->first].push_back(buffers[i]);
      break;
    }
  }
  return places;
}

}  // namespace

Program with_fewest_below(const Program& program, const std::map<Tier, LowerTier>& tiers,
                          std::int64_t budget_bytes) {
  Program pass = program;
  set_tiers(tiers, pass);
  const std::vector<int> buffers = movable(pass);
  std::map<Tier, TierLinks> links;
  for (const auto& [tier, below] : tiers) links[tier] = below.links;
  const auto with = [&](std::size_t count, std::int64_t bytes) {
    return with_paging_on(pass, places_of(tiers, pass, buffers, count), links, bytes);
  };
  std::size_t too_few = 0;
  std::size_t enough = buffers.size();
  while (enough - too_few > 1) {
    const std::size_t middle = (too_few + enough) / 2;
    (with(middle, budget_bytes) ? enough : too_few) = middle;
  }
  std::optional<Program> found = with(enough, budget_bytes);
  if (!found) found = with(buffers.size(), replay(pass).peak_bytes);
  expect(found.has_value(), "a pass needs more than without its parameters below");
  return std::move(*found);
}

}  // namespace garonne::plan
