// Which samples a rank trains on, step by step.
#pragma once

#include <cstdint>

#include "base/config.hpp"
#include "nn/fields/field_rows.hpp"
#include "plan/program/program.hpp"
#include "train/workload/workload.hpp"

namespace garonne::train {

// The micro-batches of the rank that runs `program`, from the first of `first_step` to the last of
// the run, in the order in which the Program loads them. `rows`: of the rank's part of the model.
// Throws InternalError for a Program that does not load each micro-batch once.
StreamOrder training_order(const RunConfig& config, const Workload& workload,
                           const plan::Program& program, const nn::FieldRows& rows,
                           std::int64_t first_step);

}  // namespace garonne::train
