// A model as a run left it: its configuration, and its parameters at a saved step, for evaluation
// and export.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "dist/session.hpp"
#include "exec/device_tier.hpp"
#include "exec/executor.hpp"
#include "optim/optimizer.hpp"
#include "train/cluster.hpp"
#include "train/planning.hpp"

namespace garonne::train {

struct TrainedModel {
  RunConfig config;
  std::int64_t step = 0;
  std::int64_t budget_bytes = 0;
  Setup setup;
  nn::Products products;
  std::unique_ptr<ComputeSession> compute;
  std::unique_ptr<optim::Optimizer> optimizer;
  std::unique_ptr<exec::DeviceTier> tier;
  exec::ModelState state;

  exec::Machine machine();
};

// Step -1 = the newest checkpoint that verifies; 0 = the initialisation, made again from the seed.
// The whole model on this rank, without a word to others; threads and budget are those of a rank of
// the session. Throws IoError when there is no such checkpoint.
TrainedModel open_trained_model(const std::string& run_directory, std::int64_t step,
                                const dist::Session& session);

}  // namespace garonne::train
