// Buffers that leave the device between their uses and come back in time, so that it holds no more
// than a budget: what is next is read ahead while there is room, and what is used last from now on
// leaves first (Cao, Felten, Karlin, Li: A study of integrated prefetching and caching strategies,
// 1995; their "aggressive"), with the price of what has to be written before it can go.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "plan/offload/offload.hpp"
#include "plan/offload/state_offload.hpp"
#include "plan/program/program.hpp"

namespace garonne::plan {

// By place of a legal Program: bytes of `buffers` that the device holds there and that nothing uses
// there.
std::vector<std::int64_t> idle_bytes(const Program& program, const std::vector<int>& buffers);

// The Program with `buffers` of the device on `tier` whenever they are idle and their room is
// wanted. Those that last do so there, under the name "<name>@<tier>"; they are read before a use,
// dropped where the tier has their content, and written back behind their last change. Others go
// out when they have changed, and come back to be read or changed further. Nothing where some place
// of the list has no room within `budget_bytes` for what it uses, which depends on bytes alone.
// Peak and seconds are those of its replay; whether the tier has room is for the caller to say.
// `more_bytes`: by place what there is beside the budget, which others are to leave later; none
// where it is empty.
std::optional<Program> with_paging(Program program, const std::vector<int>& buffers, Tier tier,
                                   const TierLinks& links, std::int64_t budget_bytes,
                                   const std::vector<std::int64_t>& more_bytes = {});

// The same on the host, but for what the updates of `groups`, and what is summed for them, use of
// `buffers`. Of a gradient the host has a copy when the update begins, which nobody frees; a
// parameter that lasts on the host is on the device no more then, and comes back behind the update
// only. These instructions are left as they are: the Program is legal when others have taken their
// place. What lasts of the groups is nowhere on the device.
std::optional<Program> with_paging_for_updates(Program program, const std::vector<int>& buffers,
                                               const std::vector<StateGroup>& groups,
                                               const TierLinks& links, std::int64_t budget_bytes);

// By place, with what such updates do not use there.
std::vector<std::int64_t> idle_bytes_for_updates(const Program& program,
                                                 const std::vector<int>& buffers,
                                                 const std::vector<StateGroup>& groups);

}  // namespace garonne::plan
