// What ranks find out about their places before they train: more threads than cores, and the one
// whose processor, memory, link or GPU is slower than those of all others.
#pragma once

#include <string>
#include <vector>

#include "dist/session.hpp"
#include "train/setup/run_device.hpp"

namespace garonne::train {

// Sentences for people (odd_ranks.hpp), on rank 0; empty elsewhere, and for one rank. A rank or a
// link is named where three measurements in a row agree; where the first names nobody, the others
// are left out. Takes some hundredths of a second and 32 MiB for as long, of a GPU what
// device::gpu_speed takes. `threads`: of this rank that compute. No communication thread and no
// tier has been made. Collective over all ranks.
std::vector<std::string> check_start(dist::Session& session, int threads, RunDevice& device);

}  // namespace garonne::train
