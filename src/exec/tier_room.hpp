// The room that a Program needs on a tier below the device.
#pragma once

#include <cstdint>

#include "base/device.hpp"
#include "plan/program/program.hpp"

namespace garonne::exec {

// An executor of a rotated Program flushes it after so many steps in a row, if nobody else has:
// what is carried may find other places in each of them, and what is flushed begins anew.
inline constexpr std::int64_t most_steps_in_a_row = 256;

// How far the blocks reach that an execution of the Program asks for on the tier, one step after
// the other, of device::tier_places(`limit_bytes`), of a rotated one also where it is flushed
// between two of them; 0 where nothing is there. The limit is the peak there or more.
std::int64_t tier_room(const plan::Program& program, Tier tier, std::int64_t limit_bytes);

}  // namespace garonne::exec
