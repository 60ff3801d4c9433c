// Ways back from passes that are divided at their collectives, and on from there.
#pragma once

#include "plan/program/program.hpp"

namespace garonne::plan::test {

// Puts the parts of each divided pass together again, as make_undivided_program wrote it.
Program fold_passes(Program program);

// Collectives of passes beside Compute, each with a wait before its pass is finished.
Program with_passes_beside_compute(Program program);

}  // namespace garonne::plan::test
