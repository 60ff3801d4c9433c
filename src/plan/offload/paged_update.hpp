// Updates on the host from pages there: gradients that left the device when they were complete are
// updated where they went, and parameters that last on the host are updated in place, so that
// nothing of an update comes to the device; see plan/offload/paging.hpp and host_update.hpp.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "plan/offload/offload.hpp"
#include "plan/offload/state_offload.hpp"
#include "plan/program/program.hpp"

namespace garonne::plan {

// with_paging() of `pages` to the host, where the updates of `groups` are, too. The pages are
// parameters and gradients, without buffers of the groups, which never move. Nothing where some
// place has no room. Peak and seconds are those of its replay.
std::optional<Program> with_paged_updates(Program program, const std::vector<int>& pages,
                                          const std::vector<StateGroup>& groups,
                                          const TierLinks& links, double bytes_per_second,
                                          std::int64_t budget_bytes);

// By place of a legal Program: bytes of pages and groups that the device holds there and need not.
std::vector<std::int64_t> idle_bytes_of_updates(const Program& program,
                                                const std::vector<int>& pages,
                                                const std::vector<StateGroup>& groups);

}  // namespace garonne::plan
