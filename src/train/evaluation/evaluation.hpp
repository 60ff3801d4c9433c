// Validation loss and generated text, as forward-only Programs within the budget.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/reader.hpp"
#include "data/tokenizers/tokenizer.hpp"
#include "dist/session.hpp"
#include "exec/executor.hpp"
#include "train/evaluation/sampling.hpp"
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

struct Generation {
  std::string prompt;
  std::int64_t tokens = 200;  // at most
  Sampling sampling;
  std::uint64_t seed = 1;
  std::vector<std::string> stop_texts;  // a continuation ends before the first of them
  std::int64_t continuations = 1;       // of the same prompt
};

// Continuations of `prompt`, token by token with the last model.sequence tokens as context. Each
// ends where the tokenizer's end of a text comes. Local to the rank. Throws PlanError when the
// generating Program does not fit the budget.
std::vector<std::string> generate(const Setup& setup, const Generation& generation,
                                  const data::Tokenizer& tokenizer, exec::Machine machine,
                                  std::int64_t budget_bytes);

}  // namespace garonne::train
