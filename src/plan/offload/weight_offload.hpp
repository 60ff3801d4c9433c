// Parameters on a tier below the device between their uses: the tier has their content until an
// update, so that they are dropped for nothing and read again; see plan/offload/paging.hpp.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "base/device.hpp"
#include "plan/offload/offload.hpp"
#include "plan/program/program.hpp"

namespace garonne::plan {

// What passes and gathers read of them, compute copies and shards included, of `least_bytes` and
// more, in the order of the Program's buffers.
std::vector<int> movable_weights(const Program& program, std::int64_t least_bytes);

// The Program with buffers on tiers whenever they are idle and their room is wanted (with_paging),
// those of one tier after those of the one above; where that finds no room, with that which the
// later ones will leave. Tiers that `links` has not take no time.
std::optional<Program> with_paging_on(const Program& program,
                                      const std::map<Tier, std::vector<int>>& buffers,
                                      const std::map<Tier, TierLinks>& links,
                                      std::int64_t budget_bytes);

// Another Program of the same rank, which changes nothing that lasts, with that where `like` has
// it. What it reads of it comes and goes within `budget_bytes` where `links` has its tier; nothing
// where that is too little.
std::optional<Program> with_lasting_as(Program program, const Program& like,
                                       const std::map<Tier, TierLinks>& links,
                                       std::int64_t budget_bytes);

}  // namespace garonne::plan
