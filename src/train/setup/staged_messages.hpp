// What messages between buffers of a GPU take of pinned memory where MPI carries them.
#pragma once

#include <cstdint>

#include "plan/program/program.hpp"

namespace garonne::train {

// The most that the Program has under way at once, from when an instruction is put on a lane to its
// Wait, with room for holes between blocks; 0 where it meets nobody.
std::int64_t staged_bytes(const plan::Program& program);

}  // namespace garonne::train
