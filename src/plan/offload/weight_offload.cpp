#include "plan/offload/weight_offload.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "plan/offload/lower_buffers.hpp"
#include "plan/offload/paging.hpp"
#include "plan/program/lasting_home.hpp"
#include "plan/program/replay.hpp"

namespace garonne::plan {
namespace {

constexpr std::array<Tier, 2> tiers_below = {Tier::Host, Tier::Disk};

}  // namespace

std::vector<int> movable_weights(const Program& program, std::int64_t least_bytes) {
  std::vector<int> found;
  for (std::size_t id = 0; id < program.buffers.size(); ++id) {
    const Buffer& buffer = program.buffers[id];
    if (buffer.kind == BufferKind::Parameter && buffer.tier == Tier::Device &&
        buffer.live_at_start && buffer.live_at_end &&
        buffer.bytes >= std::max<std::int64_t>(least_bytes, 1))
      found.push_back(static_cast<int>(id));
  }
  return found;
}

std::optional<Program> with_paging_on(const Program& program,
                                      const std::map<Tier, std::vector<int>>& buffers,
                                      const std::map<Tier, TierLinks>& links,
                                      std::int64_t budget_bytes) {
  for (const bool leave : {false, true}) {
    if (leave && buffers.size() < 2) break;
    std::optional<Program> paged = program;
    for (auto tier = buffers.begin(); paged && tier != buffers.end(); ++tier) {
      // On the device until it is their turn.
      std::vector<int> later;
      for (auto next = std::next(tier); next != buffers.end(); ++next)
        later.insert(later.end(), next->second.begin(), next->second.end());
      const auto found = links.find(tier->first);
      paged = with_paging(*paged, tier->second, tier->first,
                          found == links.end() ? TierLinks() : found->second, budget_bytes,
                          leave ? idle_bytes(*paged, later) : std::vector<std::int64_t>());
    }
    if (paged) return paged;
  }
  return std::nullopt;
}

std::optional<Program> with_lasting_as(Program program, const Program& like,
                                       const std::map<Tier, TierLinks>& links,
                                       std::int64_t budget_bytes) {
  std::set<std::string> lasting;
  for (const Buffer& buffer : like.buffers) {
    if (buffer.live_at_start) lasting.insert(buffer.name);
  }
  std::map<Tier, std::vector<int>> below;
  for (std::size_t id = 0; id < program.buffers.size(); ++id) {
    const Buffer& buffer = program.buffers[id];
    if (!buffer.live_at_start || lasting.contains(buffer.name)) continue;
    for (const Tier tier : tiers_below) {
      if (lasting.contains(name_below(buffer.name, tier)))
        below[tier].push_back(static_cast<int>(id));
    }
  }
  for (const Tier tier : tiers_below) program.tier(tier) = like.tier(tier);
  auto moved = with_paging_on(program, below, links, budget_bytes);
  if (moved) set_replayed(*moved);
  return moved;
}

}  // namespace garonne::plan
