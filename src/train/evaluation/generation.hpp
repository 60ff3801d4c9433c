// Text that a model writes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/tokenizers/tokenizer.hpp"
#include "dist/session.hpp"
#include "exec/executor.hpp"
#include "train/evaluation/parameter_placement.hpp"
#include "train/evaluation/sampling.hpp"
#include "train/setup/planning.hpp"

namespace garonne::train {

struct Generation {
  std::string prompt;
  std::string prompt_key = "--generate";  // that gave it
  std::vector<std::uint32_t> prompt_ids;  // where it is given as tokens, in the place of `prompt`
  bool begins = false;        // the token that begins texts stands in front of a prompt of text
  std::int64_t tokens = 400;  // at most
  Sampling sampling;
  std::uint64_t seed = 1;
  std::vector<std::string> stop_texts;  // a continuation ends before the first of them
  std::int64_t continuations = 1;       // of the same prompt
};

struct Generated {
  std::vector<std::string> texts;               // on rank 0; empty ones for a prompt of ids
  std::vector<std::vector<std::uint32_t>> ids;  // likewise: their tokens
  std::int64_t tokens = 0;                      // that were chosen, of all texts
  std::int64_t ended = 0;  // texts that the model ended, by a token that ends one; on rank 0
  double seconds = 0;
  std::int64_t kept_bytes = 0;  // of keys and values; of the rank with most, as the peaks
  std::int64_t peak_bytes = 0;
  std::int64_t planned_peak_bytes = 0;
};

// The tokens that are continued. ConfigError as generate().
std::vector<std::uint32_t> prompt_of(const Setup& setup, const Generation& generation,
                                     const data::Tokenizer* tokenizer);

// Continuations of `prompt`, token by token with the last model.sequence tokens as context. Each
// ends where an end of a text comes, of the model or of the tokenizer; that may be null for a
// prompt of ids. Ids that the tokenizer has nothing for are not chosen. A prompt that is no tokens
// is what begins a text, or else what ends one. The data ranks of the setup's grid share them,
// stages and tensor ranks make each together; the random numbers are functions of seed, text and
// token. `say` is told, before the first token, how that will be done. Throws, agreed, ConfigError
// for a prompt with tokens that the model has not, or of none where the tokenizer has neither of
// these, or that is to begin where nothing begins one, PlanError where the passes do not fit the
// budget. Collective over all ranks, which have the same prompt.
Generated generate(const Setup& setup, const Generation& generation,
                   const data::Tokenizer* tokenizer, const exec::RankResources& resources,
                   const ParameterPlacement& placement, std::int64_t budget_bytes,
                   dist::Session& session, const std::function<void(const std::string&)>& say);

}  // namespace garonne::train
