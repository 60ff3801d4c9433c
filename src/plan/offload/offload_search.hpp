// Which idle times of a Program are spent on a lower tier, and from when to when, so that the
// device holds no more than a budget and as little time as possible is lost.
//
// Greedy: while some place of the list is over the budget, the idle time that takes off most bytes
// over the budget for a second lost; a copy loses what the lanes have no time for. Then what is
// away stays no longer away than its room is needed, so that copies have as much time as there is.
// That begins several times, with more to take off than has to be, or with other prices, and the
// fastest by replay stays.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "base/bytes.hpp"
#include "base/device.hpp"
#include "plan/offload/offload.hpp"
#include "plan/program/program.hpp"

namespace garonne::plan {

// What is below the device.
struct LowerTier {
  TierLinks links;
  std::int64_t budget_bytes = 0;
  std::int64_t granularity = cpu_allocation_granularity;  // buffers there are multiples of it
  // That updates of the optimizer read and write there, where the tier is the host's memory.
  double update_bytes_per_second = 5e9;

  bool operator==(const LowerTier&) const = default;
};

struct OffloadRequest {
  std::int64_t budget_bytes = 0;  // of the device
  std::map<Tier, LowerTier> tiers;
  std::int64_t least_bytes = 0;  // smaller buffers stay: their copies would be all latency
  // By place of the list, beyond the budget: what others can make room for. Empty: nothing.
  std::vector<std::int64_t> more_bytes = {};
};

// What the device holds where all that is idle is below, all idle times of buffers of `least_bytes`
// and more at once: with a tier that is large enough, and with no less, choose_offloads() succeeds.
// `more_bytes` as in a request.
std::int64_t bytes_without_the_idle(const Program& program, std::int64_t least_bytes,
                                    const std::vector<std::int64_t>& more_bytes = {});

// In their order in the list; none where the Program is within the budget as it is. Nothing where
// no choice of idle times is within all budgets that the search finds.
std::optional<std::vector<Offload>> choose_offloads(const Program& program,
                                                    const OffloadRequest& request);

// The same where somebody else has chosen: all of `idle` for which a tier has room, the first of
// them in order, and none of them that is not needed.
std::optional<std::vector<Offload>> place_offloads(const Program& program,
                                                   const OffloadRequest& request,
                                                   const std::vector<IdleTime>& idle);

}  // namespace garonne::plan
