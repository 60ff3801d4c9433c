// A checkpoint cut anew for another number of ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "train/checkpoint/manifest.hpp"

namespace garonne::train {

// Writes a checkpoint that has been verified once more, as `ranks` data ranks write it, into
// another run directory: every element of every tensor with its bits, in as many files of equal
// parts. Holds 16 MiB at a time. `progress`: bytes so far. Makes the run directory with the
// configuration of the checkpoint where there is none. Returns the new checkpoint. Throws IoError,
// as where one of that step is there already, and leaves nothing half-written.
std::string reshard_checkpoint(const std::string& source, const Manifest& manifest,
                               const std::string& run_directory, int ranks,
                               const std::function<void(std::int64_t)>& progress = {});

}  // namespace garonne::train
