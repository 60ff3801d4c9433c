// Programs out of files, in the place of those that would be planned.
#pragma once

#include <cstdint>
#include <string>

#include "dist/session.hpp"
#include "train/setup/planning.hpp"

namespace garonne::train {

// Reads the Programs that `garonne plan --program` or an earlier run wrote into `directory` (a file
// for the first rank of each stage, which all its ranks have; others are not needed), and has
// all ranks' Programs replayed together. `setup` becomes that of the rank's stage, cut as the
// Programs are. `whole` has its costs applied. Throws on all ranks ConfigError (--run-program)
// where they are not of this model, grid or optimizer, or go beyond `budget_bytes`, or are
// illegal, with the instruction; IoError for a file that cannot be read. Collective.
Choice given_programs(const std::string& directory, const Setup& whole, std::int64_t budget_bytes,
                      Setup& setup, dist::Session& session);

}  // namespace garonne::train
