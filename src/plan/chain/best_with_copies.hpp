// The fastest that is found where a chain has bandwidths: what is not kept is run again, as in the
// sequences of the other solvers, or below; then gaps are put below and taken back one by one, and
// small chains are searched whole.
#pragma once

#include <cstdint>

#include "plan/chain/chain_solver.hpp"

namespace garonne::plan {

ChainAnswer best_with_copies(const Chain& chain, std::int64_t budget_bytes,
                             const ChainSolverOptions& options);

// The least budget at which best_with_copies() answers.
std::int64_t least_with_copies(const Chain& chain);

}  // namespace garonne::plan
