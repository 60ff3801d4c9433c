// The file that a Program needs on the disk tier.
#pragma once

#include <cstdint>

#include "plan/program/program.hpp"

namespace garonne::exec {

// How far the blocks reach that an execution of the Program asks for, one step after the other, of
// device::places_on_disk(`limit_bytes`); 0 where nothing is on the disk. The limit is the peak
// there or more.
std::int64_t disk_file_bytes(const plan::Program& program, std::int64_t limit_bytes);

}  // namespace garonne::exec
