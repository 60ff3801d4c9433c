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
#include "train/setup/cluster.hpp"
#include "train/setup/planning.hpp"
#include "train/setup/run_device.hpp"

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
  std::unique_ptr<RunDevice> device;  // last: its lanes use the others

  exec::Machine machine();
};

// Step -1 = the newest checkpoint that verifies; 0 = the initialisation, made again from the seed.
// The whole model on each rank; threads and budget are the least of all ranks. Throws IoError when
// there is no such checkpoint, and dist::AgreedError where ranks have different ones or are not
// alike (train/setup/rank_agreement.hpp). Collective.
TrainedModel open_trained_model(const std::string& run_directory, std::int64_t step,
                                dist::Session& session);

// The model of a configuration as its seed makes it, on one rank, to be filled and saved. Errors
// are those of make_setup.
TrainedModel initial_model(const RunConfig& config, const DataFacts& facts, dist::Session& session);

}  // namespace garonne::train
