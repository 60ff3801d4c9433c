// Validation loss, by a forward-only Program within the budget.
#pragma once

#include <cstdint>
#include <memory>

#include "data/reader.hpp"
#include "dist/session.hpp"
#include "exec/executor.hpp"
#include "train/setup/planning.hpp"
#include "train/workload/workload.hpp"

namespace garonne::train {

// Micro-batches that a validation reads: evaluation.batches, or what the file's validation part
// holds.
std::int64_t validation_micro_batches(const RunConfig& config, std::int64_t validation_samples);

// Mean loss in nats over the first `micro_batches` of the validation part, shared out over the data
// axis and added in their order, so that every grid gives the same number to rounding. Collective
// over all ranks. `peak_bytes` is raised to the peak of this rank.
double validation_loss(const Setup& setup, const plan::Program& program,
                       const exec::Machine& machine, const Workload& workload,
                       const std::shared_ptr<data::Reader>& reader, std::int64_t micro_batches,
                       dist::Session& session, std::int64_t& peak_bytes);

}  // namespace garonne::train
