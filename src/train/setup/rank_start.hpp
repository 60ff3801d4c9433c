// What the start of a rank is made of, whatever the rank is to run: a training, a run on made-up
// data, or a trained model.
#pragma once

#include <memory>

#include "dist/session.hpp"
#include "exec/device_tier.hpp"
#include "exec/executor.hpp"
#include "exec/model_state.hpp"
#include "nn/gemm/product.hpp"
#include "optim/optimizer.hpp"
#include "plan/program/program.hpp"
#include "train/setup/cluster.hpp"
#include "train/setup/lower_tiers.hpp"
#include "train/setup/planning.hpp"
#include "train/setup/run_device.hpp"

namespace garonne::train {

// The threads of a rank, and kernels on its device. Once a process. Collective over all ranks.
std::unique_ptr<ComputeSession> start_computing(int threads, RunDevice& device,
                                                dist::Session& session);

// The transports of a rank whose `program` trains. On a GPU, memory of the host is pinned first, for
// messages, for steps that are recorded and for the tier below. The device outlives them, and no
// executor has been made. Collective over all ranks.
std::unique_ptr<Axes> open_training_axes(const Setup& setup, const plan::Program& program,
                                         RunDevice& device, dist::Session& session);

// Step 0 by the seed of the configuration, in `tier`: of the rank that runs `program`, without what
// make_lower_tiers() and gather_parameters() are to add, or of who runs forward only, whose
// optimizer has no states. The device outlives the state.
exec::ModelState first_state(const Setup& setup, const plan::Program& program, RunDevice& device,
                             const exec::DeviceTier& tier);
exec::ModelState first_state_without_optimizer(const Setup& setup, RunDevice& device,
                                               const exec::DeviceTier& tier);

// exec::gather_parameters in `tier`, over the data ranks of `axes`. Collective over them.
void gather_parameters(exec::ModelState& state, const Axes& axes, const exec::DeviceTier& tier);

// What resources of a rank consist of; all of it outlives them.
struct RankParts {
  RunDevice& device;
  exec::DeviceTier& tier;
  exec::ModelState& state;
  const nn::Products& products;
  const optim::Optimizer* optimizer = nullptr;
  const Axes* axes = nullptr;          // null: the rank meets no others
  const LowerMemory* below = nullptr;  // null: its Programs have nothing there
  // Of who trains, whose steps may be recorded; null: none is.
  dist::Session* session = nullptr;
};
exec::RankResources resources_of(const RankParts& parts);

}  // namespace garonne::train
