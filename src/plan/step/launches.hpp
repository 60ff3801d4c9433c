// What kernels cost that belong to no node: sums, the norm, updates, parts of divided passes.
#pragma once

#include "plan/program/program.hpp"
#include "plan/step/generator.hpp"

namespace garonne::plan {

// Gives every instruction but the passes of nodes the issue seconds of its kernels, and on Compute
// their least seconds. Nothing where both are 0.
void add_launches(Program& program, const KernelSeconds& kernels);

}  // namespace garonne::plan
