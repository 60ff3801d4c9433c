// Whether there is room for a checkpoint, found before hours of training.
#pragma once

#include <cstdint>
#include <string>

namespace garonne::train {

// IoError where fewer than `bytes` are free where checkpoints of the run are written: as much is
// needed beside those that are there, since old ones go once a new one is in its place. A file
// system that cannot say how much is free is believed to have enough.
void expect_space_for_checkpoint(const std::string& run_directory, std::int64_t bytes);

}  // namespace garonne::train
