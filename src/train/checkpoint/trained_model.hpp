// A model as a run left it: its configuration, and its parameters at a saved step, for evaluation
// and export.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/grid.hpp"
#include "dist/session.hpp"
#include "exec/device_tier.hpp"
#include "exec/executor.hpp"
#include "optim/optimizer.hpp"
#include "train/evaluation/parameter_placement.hpp"
#include "train/setup/cluster.hpp"
#include "train/setup/lower_tiers.hpp"
#include "train/setup/planning.hpp"
#include "train/setup/run_device.hpp"

namespace garonne::train {

struct TrainedModel {
  RunConfig config;
  std::int64_t step = 0;
  // Equal texts, equal parameters: the hash of the checkpoint's manifest, or, of what the seed
  // makes, that of the configuration.
  std::string identity;
  nlohmann::json data;  // what the manifest says of the data of the run; null where it says nothing
  std::int64_t budget_bytes = 0;
  Setup setup;
  nn::Products products;
  std::unique_ptr<ComputeSession> compute;
  std::unique_ptr<optim::Optimizer> optimizer;
  std::unique_ptr<exec::DeviceTier> tier;
  exec::ModelState state;
  ParameterPlacement placement;       // of all that runs it
  LowerMemory below;                  // where some parameters are there
  std::unique_ptr<RunDevice> device;  // its lanes use the others
  std::unique_ptr<Axes> axes;         // of a grid; last: transports of a GPU's buffers use it

  exec::RankResources resources();
};

// Step -1 = the newest checkpoint that verifies; 0 = what the run began
// with: its parameters of another checkpoint (run/run_directory.hpp), or the initialisation, made
// again from the seed.
// The whole model on each rank, or, on a grid, which need not be that of the run, the part of its
// stage, cut as declared, and tensor rank. Threads and budget are the least of all ranks. Throws
// IoError when there is no such checkpoint, PlanError where the parameters of a rank alone pass its
// budget and may not be elsewhere, ConfigError (grid) for one of another number of ranks or that
// the model cannot be cut for, and dist::AgreedError where ranks have different checkpoints or are
// not alike (train/setup/rank_agreement.hpp). Paths of the data are as with_found_data() finds
// them. Without `validation` the run's own validation data are not looked at, and the configuration
// names none. `memory`: of the keys memory.*; without them the budget is the run's, and nothing is
// below it, since what trained there may have been another machine (ParameterPlacement's errors,
// too). Collective.
TrainedModel open_trained_model(const std::string& run_directory, std::int64_t step,
                                dist::Session& session,
                                const std::optional<GridShape>& grid = std::nullopt,
                                bool validation = true, const Overrides& memory = {});

// A saved model of which nothing is in memory.
struct StoredModel {
  RunConfig config;
  std::int64_t step = 0;
  Setup setup;
  // Parameter `number`, whole, in the type that it was trained in, in memory of the host beside all
  // tiers. Read, or made, anew each time. Throws IoError where the checkpoint is of another model.
  std::function<at::Tensor(std::size_t number)> parameter;
};

// Steps and errors are those of open_trained_model; whatever device and budget the run had.
StoredModel open_stored_model(const std::string& run_directory, std::int64_t step,
                              const std::function<void(const std::string&)>& warn);

// The model of a configuration as its seed makes it, on one rank, to be filled and saved. Errors
// are those of make_setup.
TrainedModel initial_model(const RunConfig& config, const DataFacts& facts, dist::Session& session);

}  // namespace garonne::train
