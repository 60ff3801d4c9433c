// A run on made-up tokens, for measuring: everything of a run file but its data, files and
// validation. Nothing is read or written but the profile's cache.
#pragma once

#include <cstdint>
#include <memory>

#include "base/config.hpp"
#include "dist/session.hpp"
#include "exec/executor.hpp"
#include "optim/optimizer.hpp"
#include "train/setup/cluster.hpp"
#include "train/setup/lower_tiers.hpp"
#include "train/setup/planning.hpp"
#include "train/setup/run_device.hpp"

namespace garonne::train {

// What a run with this file needs, planned with measured costs.
class MadeUpRun {
 public:
  // Collective over all ranks; throws as training does where nothing fits, the grid is wrong or
  // ranks differ. `session` must outlive it.
  // `link_bytes_per_second` as RunDevice takes it; plans go by it, too.
  MadeUpRun(const RunConfig& config, dist::Session& session, double link_bytes_per_second = 0);

  // Of this rank's stage.
  const Setup& setup() const { return setup_; }
  const plan::CostTable& costs() const { return costs_; }
  const nn::Products& products() const { return products_; }
  const optim::Optimizer* optimizer() const { return optimizer_.get(); }
  std::int64_t budget_bytes() const { return budget_bytes_; }
  // What the run file's budget and plan come to.
  const Choice& choice() const { return choice_; }
  const Axes& axes() const { return *axes_; }
  RunDevice& device() const { return *device_; }
  int rank() const { return session_.rank(); }
  dist::Session& session() const { return session_; }

 private:
  dist::Session& session_;
  Setup setup_;
  std::int64_t budget_bytes_ = 0;
  Choice choice_;
  std::unique_ptr<ComputeSession> compute_;
  plan::CostTable costs_;
  nn::Products products_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::unique_ptr<RunDevice> device_;  // its lanes use the others
  std::unique_ptr<Axes> axes_;         // last: transports of a GPU's buffers use the device
};

// One Program of such a run with a device tier, parameters and states of its own; on a GPU
// one at a time.
class MadeUpTrainer {
 public:
  // `choice` and `run` must outlive it. The tier refuses what goes beyond `limit_bytes`.
  MadeUpTrainer(const MadeUpRun& run, const Choice& choice, std::int64_t limit_bytes);

  // Steps count from 1. Collective over all ranks.
  exec::StepOutputs step(std::int64_t number);
  // Of the last step, without making its data, which training does beside steps.
  double step_seconds() const { return step_seconds_; }
  const plan::Program& program() const { return program_; }

 private:
  const MadeUpRun& run_;
  plan::Program program_;
  std::unique_ptr<exec::DeviceTier> tier_;
  exec::ModelState state_;
  LowerMemory below_;
  std::unique_ptr<exec::Executor> executor_;
  exec::HostBatch batch_;  // all micro-batches'
  double step_seconds_ = 0;
};

}  // namespace garonne::train
