// Updates on the host: masters and states of the optimizer last there and never move; gradients
// come down, and parameters go up again when they are updated: Ren, Rajbhandari, Aminabadi, Ruwase,
// Yang, Zhang, Li, He: ZeRO-Offload (2021), section 4, in the bits of updates on the device and
// without the delay of a step.
#pragma once

#include <map>
#include <vector>

#include "plan/offload/state_offload.hpp"
#include "plan/program/program.hpp"

namespace garonne::plan {

// When gradients leave.
enum class GradientCopies {
  WhenComplete,  // beside the backward passes that are still to come
  AtTheEnd,      // when the norm is known: the host has no gradients beside what it has else
};

// Of groups of states those whose updates the host can take: those that do without sums over ranks
// of parts of their parameters. Sums of whole ones the host makes itself.
std::vector<StateGroup> for_host(const Program& program, std::vector<StateGroup> groups);

// The Program with the updates of the groups on Tier::Host, all of them issued when the norm is
// known, one after the other on the lane host-compute beside the copies of others and beside the
// device's own updates. The device holds gradients until the place of their update. Of a parameter
// that is its own master, or that ranks share, the device's content goes along: only what the rank
// trains of it changes. `bytes_per_second`: that updates read and write there. Peak and seconds are
// those of its replay; whether the tier has room is for the caller to say.
// `pages`: lower buffers by those of the device that the host has anyway, as
// with_paging_for_updates() leaves them: parameters that last there, and gradients that have been
// copied there when the norm is known and are freed by the update. The Program need not be legal
// before.
Program with_updates_on_host(Program program, const std::vector<StateGroup>& groups,
                             const TierLinks& links, double bytes_per_second, GradientCopies when,
                             const std::map<int, int>& pages = {});

}  // namespace garonne::plan
