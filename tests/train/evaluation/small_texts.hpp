// Small models of text, and the logits after each of the texts that one grows through.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/config.hpp"
#include "exec/model_state.hpp"
#include "train/evaluation/text_passes.hpp"

namespace garonne::train {

inline constexpr std::int64_t vocabulary = 37;
inline constexpr std::int64_t window = 12;
inline constexpr std::int64_t any_budget = std::int64_t{1} << 40;

inline RunConfig config_of(const std::string& kind, const std::string& precision,
                           const GridShape& grid) {
  RunConfig config;
  config.model.kind = kind;
  config.model.layers = 3;
  config.model.hidden = 32;
  config.model.heads = 4;
  if (kind == "llama") {
    config.model.kv_heads = 2;
    config.model.inner = 24;
  }
  config.model.sequence = window;
  config.train.precision = precision;
  config.train.micro_batch = 2;
  config.train.global_batch = std::int64_t{2} * grid.data * grid.pipeline;
  config.grid.data = grid.data;
  config.grid.pipeline = grid.pipeline;
  config.grid.tensor = grid.tensor;
  config.memory.budget = any_budget;
  return config;
}

// Weights of step 0 so large that positions and tokens tell.
inline void make_parameters_tell(exec::ModelState& state) {
  for (std::size_t p = 0; p < state.pieces.size(); ++p) {
    const at::Tensor trained = state.parameter(p).trained();
    if (trained.dim() > 1) trained.mul_(8);
  }
  exec::refresh_compute_copies(state);
}

inline std::vector<std::uint32_t> some_text(std::size_t tokens) {
  std::vector<std::uint32_t> text;
  for (std::size_t i = 0; i < tokens; ++i)
    text.push_back(static_cast<std::uint32_t>((7 * i * i + 3 * i + 5) % vocabulary));
  return text;
}

// Of every text from the prompt to the longest; on the last stage.
inline std::vector<std::vector<double>> all_logits(TextPasses& passes, std::size_t prompt,
                                                   std::size_t longest) {
  std::vector<std::vector<double>> all;
  const std::vector<std::uint32_t> text = some_text(longest);
  for (std::size_t tokens = prompt; tokens <= longest; ++tokens) {
    std::vector<double> logits =
        passes.logits_after({text.begin(), text.begin() + static_cast<std::ptrdiff_t>(tokens)});
    if (!logits.empty()) logits.resize(vocabulary);
    all.push_back(std::move(logits));
  }
  return all;
}

}  // namespace garonne::train
