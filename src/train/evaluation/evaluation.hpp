// Validation loss, by a forward-only Program within the budget.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "data/reader.hpp"
#include "dist/session.hpp"
#include "exec/executor.hpp"
#include "train/evaluation/validation_batches.hpp"
#include "train/setup/planning.hpp"
#include "train/workload/workload.hpp"

namespace garonne::train {

// Micro-batches that a validation wants: evaluation.batches, or what the validation part holds; 0
// where that is less than one.
std::int64_t validation_micro_batches(const RunConfig& config, std::int64_t validation_samples);

// The mean loss of each source over its micro-batches, which are shared out over the data axis and
// whose losses are added in their order, so that every grid gives the same numbers to rounding.
// Throws AgreedError where a rank cannot read its samples. Collective over all ranks. `peak_bytes`
// is raised to the peak of this rank. `gives_up` is asked about once a second, on all ranks; where
// it says so on one, nothing comes back. It may be empty.
std::vector<double> validation_losses(const Setup& setup, const plan::Program& program,
                                      const exec::RankResources& resources,
                                      const Workload& workload,
                                      const std::shared_ptr<data::Reader>& reader,
                                      const ValidationBatches& batches, dist::Session& session,
                                      std::int64_t& peak_bytes,
                                      const std::function<bool()>& gives_up = {});

// Their mean by the weights of the sources, over about `micro_batches` (ValidationBatches).
std::optional<double> validation_loss(const Setup& setup, const plan::Program& program,
                                      const exec::RankResources& resources,
                                      const Workload& workload,
                                      const std::shared_ptr<data::Reader>& reader,
                                      std::int64_t micro_batches, dist::Session& session,
                                      std::int64_t& peak_bytes,
                                      const std::function<bool()>& gives_up = {});

}  // namespace garonne::train
