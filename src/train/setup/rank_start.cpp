#include "train/setup/rank_start.hpp"

#include <cstdint>
#include <vector>

#include "base/state_spec.hpp"

namespace garonne::train {
namespace {

// `contents`: a Program, or the states of an optimizer.
template <typename Contents>
exec::ModelState state_in(const Setup& setup, const Contents& contents, RunDevice& device,
                          const exec::DeviceTier& tier) {
  const exec::DeviceScope scope(tier);
  return exec::initial_state(device.compute(), setup.model, setup.declaration.precision,
                             static_cast<std::uint64_t>(setup.config.train.seed), contents,
                             device.staging());
}

}  // namespace

std::unique_ptr<ComputeSession> start_computing(int threads, RunDevice& device,
                                                dist::Session& session) {
  std::unique_ptr<ComputeSession> compute;
  session.agree([&] { compute = std::make_unique<ComputeSession>(threads); });
  device.use_kernels(session);
  return compute;
}

std::unique_ptr<Axes> open_training_axes(const Setup& setup, const plan::Program& program,
                                         RunDevice& device, dist::Session& session) {
  session.agree([&] { device.pin_recorded(setup.model, program); });
  pin_host_tier(program, device);
  return std::make_unique<Axes>(setup, program, device, session);
}

exec::ModelState first_state(const Setup& setup, const plan::Program& program, RunDevice& device,
                             const exec::DeviceTier& tier) {
  return state_in(setup, program, device, tier);
}

exec::ModelState first_state_without_optimizer(const Setup& setup, RunDevice& device,
                                               const exec::DeviceTier& tier) {
  return state_in(setup, std::vector<StateSpec>(), device, tier);
}

void gather_parameters(exec::ModelState& state, const Axes& axes, const exec::DeviceTier& tier) {
  const exec::DeviceScope scope(tier);
  exec::gather_parameters(state, axes.data());
}

exec::RankResources resources_of(const RankParts& parts) {
  exec::RankResources resources;
  resources.device = &parts.device.device();
  resources.tier = &parts.tier;
  resources.staging = parts.device.staging();
  resources.state = &parts.state;
  resources.products = &parts.products;
  resources.optimizer = parts.optimizer;
  if (parts.axes != nullptr) {
    resources.data = parts.axes->data();
    resources.tensor = parts.axes->tensor();
    resources.pipeline = parts.axes->pipeline();
    resources.tied = parts.axes->tied();
    resources.world = parts.axes->world();
  }
  if (parts.below != nullptr) {
    resources.host = parts.below->host_memory();
    resources.disk = parts.below->disk.get();
  }
  if (parts.session != nullptr) {
    resources.captures = parts.device.captures();
    resources.step_numbers = parts.device.step_numbers();
    resources.session = parts.session;
  }
  return resources;
}

}  // namespace garonne::train
