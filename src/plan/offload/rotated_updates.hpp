// The rotated step: updates on the host go on beside the passes of the next step, each of which
// waits for those whose parameters it reads. Exact, unlike updates that are a step late.
#pragma once

#include <optional>

#include "plan/program/program.hpp"

namespace garonne::plan {

// The Program with its updates on the host left to the next step, in the order in which that uses
// what they make; peak and seconds are those of a step that follows another one. What they need
// stays on the host between the steps. Nothing where it has no such updates, or where something
// else than bringing up what they make follows from them, as pages do. The Program must be legal.
// Whether the tiers have room is for the caller to say.
std::optional<Program> with_rotated_updates(const Program& program);

}  // namespace garonne::plan
