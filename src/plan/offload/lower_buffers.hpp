// Buffers on a tier below the device for those of a Program.
#pragma once

#include "base/device.hpp"
#include "plan/program/program.hpp"

namespace garonne::plan {

// A buffer like another one on `tier`, called "<name>@<tier>"; its number.
int add_below(Program& program, int buffer, Tier tier);

// The same of one that lasts, which lasts there from now on, and on the device no more.
int put_below(Program& program, int buffer, Tier tier);

// Its peak and seconds are those of its replay.
void set_replayed(Program& program);

}  // namespace garonne::plan
