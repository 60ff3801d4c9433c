// Which samples a rank trains on, step by step.
#pragma once

#include <cstdint>

#include "base/config.hpp"
#include "nn/model.hpp"
#include "plan/program/program.hpp"
#include "train/workload/workload.hpp"

namespace garonne::train {

// The micro-batches of the rank that runs `program`, from the first of `first_step` to the last of
// the run, in the order in which the Program loads them. `model`: the rank's part, which the
// Program is of.
// Throws InternalError for a Program that does not load each micro-batch once.
StreamOrder training_order(const RunConfig& config, const Workload& workload,
                           const plan::Program& program, const nn::Model& model,
                           std::int64_t first_step);

}  // namespace garonne::train
