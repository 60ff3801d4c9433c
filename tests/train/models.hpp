// A small model and its state, for checkpoints.
#pragma once

#include <ATen/Functions.h>

#include "exec/model_state.hpp"
#include "nn/gpt/gpt.hpp"
#include "train/checkpoint/checkpoint.hpp"

namespace garonne::train::test {

inline const std::vector<StateSpec> moments = {{.name = "first_moment"}, {.name = "second_moment"}};

struct SmallModel {
  explicit SmallModel(Precision precision = Precision::Float32, std::int64_t layers = 2,
                      std::int64_t hidden = 12, const nn::GptPart& part = {}) {
    nn::Declaration declaration;
    declaration.precision = precision;
    model = nn::make_gpt({layers, hidden, 3, 6, 17, 0}, 2, declaration, part);
    state = exec::initial_state(Queue(), model, precision, 5, moments);
  }

  // As after some steps: every element of its own, and nothing that a compute type would hold
  // exactly.
  void fill(std::uint64_t seed) {
    at::manual_seed(seed);
    for (std::size_t p = 0; p < state.pieces.size(); ++p) {
      const exec::ParameterState parameter = state.parameter(p);
      parameter.trained().copy_(at::randn_like(parameter.trained()));
      for (const auto& moment : parameter.states) moment.copy_(at::randn_like(moment));
    }
    exec::refresh_compute_copies(state);
  }

  Manifest manifest(std::int64_t step, const std::string& config = "") const {
    Manifest result;
    result.step = step;
    result.config = config;
    result.threads = 2;
    result.products = {{"forward float32 12x12x12", "MKL"}};
    result.data = {{"vocabulary", 17}, {"tokenizer", "byte"}};
    return result;
  }

  void save(const std::string& run_directory, std::int64_t step,
            const std::string& config = "") const {
    save_checkpoint(run_directory, model, moments, state, manifest(step, config),
                    CollectivePhases());
  }

  nn::Model model;
  exec::ModelState state;
};

// Bits, every tensor.
inline bool same_state(const exec::ModelState& a, const exec::ModelState& b) {
  if (a.pieces.size() != b.pieces.size()) return false;
  for (std::size_t p = 0; p < a.pieces.size(); ++p) {
    const exec::ParameterState one = a.parameter(p);
    const exec::ParameterState other = b.parameter(p);
    if (!at::equal(one.parameter, other.parameter)) return false;
    if (!at::equal(one.trained(), other.trained())) return false;
    for (std::size_t k = 0; k < moments.size(); ++k) {
      if (!at::equal(one.states[k], other.states[k])) return false;
    }
  }
  return true;
}

}  // namespace garonne::train::test
