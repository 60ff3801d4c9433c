// The gradients of one step, on the host, as a state that checkpoints can write.
#pragma once

#include <string>
#include <vector>

#include "exec/model_state.hpp"
#include "nn/model.hpp"

namespace garonne::train {

// Takes what RankResources::watch_gradient sees of one step on one rank: complete gradients of the
// mean loss of the global batch, before clipping; under ZeRO the own shards.
class GradientCapture {
 public:
  // Allocates from the calling thread's tier, which is to be the host.
  GradientCapture(const nn::Model& model, const exec::ModelState& state);

  // Copies; nothing after `finish`.
  void take(int parameter, const at::Tensor& gradient);
  void finish() { finished_ = true; }

  // Gradients in the place of parameters; no optimizer states.
  const exec::ModelState& gradients() const { return gradients_; }

 private:
  exec::ModelState gradients_;
  std::vector<int> place_of_;  // by parameter; -1 = nothing here
  bool finished_ = false;
};

// A checkpoint of gradients becomes the newest of its folder, which must be none that a run goes on
// from, by whatever path; one of gradients that were written before may be. Throws ConfigError
// (--gradients) for another. Nothing where `folder` is empty.
void expect_gradients_folder(const std::string& folder, const std::string& run_directory);

}  // namespace garonne::train
