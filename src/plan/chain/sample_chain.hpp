// A made-up chain of any size for benchmarks of solvers.
#pragma once

#include "plan/chain/chain.hpp"

namespace garonne::plan {

// A function of its arguments: blocks of different sizes and times, options from lean and slow to
// large and fast.
Chain sample_chain(int blocks, int options);

}  // namespace garonne::plan
