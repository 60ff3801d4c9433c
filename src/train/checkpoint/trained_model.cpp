#include "train/checkpoint/trained_model.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.hpp"
#include "exec/profile/profile.hpp"
#include "train/checkpoint/checkpoint.hpp"
#include "train/run/run_directory.hpp"
#include "train/setup/rank_agreement.hpp"
#include "train/workload/workload_kind.hpp"

namespace garonne::train {

exec::Machine TrainedModel::machine() {
  exec::Machine machine;
  machine.device = &device->device();
  machine.tier = tier.get();
  machine.staging = device->staging();
  machine.state = &state;
  machine.products = &products;
  machine.optimizer = optimizer.get();
  return machine;
}

namespace {

StartingPoint saved_point(const RunConfig& config, std::int64_t step,
                          const std::function<void(const std::string&)>& warn) {
  const std::string& run_directory = config.run.directory;
  StartingPoint start;
  if (step < 0) {
    start = find_starting_point(config, warn);
    if (start.checkpoint.empty())
      throw IoError(run_directory, "has no checkpoint yet; --step 0 is the initialisation");
  } else if (step > 0) {
    const auto steps = list_checkpoints(run_directory);
    if (std::find(steps.begin(), steps.end(), step) == steps.end()) {
      throw IoError(
          run_directory,
          fmt::format("has no checkpoint of step {}; there are {}", step,
                      steps.empty() ? "none" : fmt::format("{}", fmt::join(steps, ", "))));
    }
    start.checkpoint = checkpoint_path(run_directory, step);
    start.manifest = verify_checkpoint_of_step(run_directory, step);
    start.step = start.manifest.step;
  }
  return start;
}

}  // namespace

TrainedModel open_trained_model(const std::string& run_directory, std::int64_t step,
                                dist::Session& session) {
  const auto warn = [&](const std::string& text) {
    if (session.rank() == 0) fmt::print(stderr, "warning: {}\n", text);
  };
  TrainedModel trained;
  session.agree([&] { trained.config = run_directory_config(run_directory); });
  // Each rank may have a copy of its own.
  trained.config.run.directory.clear();
  const int threads = agree_on_run(trained.config, session);
  // One rank does what the grid did.
  trained.config.grid = RunConfig::GridKeys();
  // What trains may be on another machine's disk; what is trained runs forward only.
  trained.config.memory.disk.clear();
  trained.config.memory.host_budget = 0;
  trained.config.memory.allow.clear();
  trained.config.run.directory = run_directory;
  trained.config.run.resume = "auto";
  trained.device = std::make_unique<RunDevice>(trained.config, session);
  trained.budget_bytes = trained.device->budget_bytes(trained.config, session);
  StartingPoint start;
  session.agree([&] { start = saved_point(trained.config, step, warn); });
  const Manifest& manifest = start.manifest;
  dist::agree_on(session, [&] {
    dist::Facts facts = checkpoint_facts(start);
    dist::append(product_facts(manifest.products), facts);
    return facts;
  });
  trained.step = start.step;
  session.agree([&] {
    const WorkloadKind& kind = workload_kind(trained.config.model.kind);
    const DataFacts facts =
        start.checkpoint.empty()
            ? kind.open(trained.config)->facts()
            : kind.facts_of_checkpoint(trained.config, manifest, start.checkpoint);
    trained.setup = make_setup(trained.config, facts, threads);
    trained.compute = std::make_unique<ComputeSession>(threads);
  });
  trained.device->use_kernels(session);
  session.agree([&] {
    // What was measured on this machine is nearer the truth than what nodes declare.
    apply_costs(exec::load_cached_costs(trained.device->machine_text(threads), warn),
                trained.setup);
    // Products of a GPU are the tensor library's.
    if (trained.device->kind() != DeviceKind::Cuda && manifest.products.is_object()) {
      if (const auto refusal = nn::Products::refusal_of(manifest.products)) {
        warn(fmt::format("{}; last bits may differ", refusal->what()));
      } else {
        trained.products = nn::Products::from_json(manifest.products);
      }
    }
    trained.optimizer = optim::make_optimizer(trained.config);
    trained.tier = trained.device->make_tier(trained.budget_bytes);
    // What runs forward only has no use for states of the optimizer; and a run that has them below
    // its device may have no room for them on it.
    trained.setup.step.optimizer_states.clear();
    const std::size_t parameters = trained.setup.model.graph.parameters.size();
    // What was imported has parameters alone.
    const bool is_imported = manifest.tensors.size() == parameters;
    const std::size_t saved = is_imported ? 1 : 1 + trained.optimizer->states().size();
    const exec::DeviceScope scope(*trained.tier);
    trained.state = exec::initial_state(trained.device->compute(), trained.setup.model,
                                        trained.setup.declaration.precision,
                                        static_cast<std::uint64_t>(trained.config.train.seed),
                                        std::vector<StateSpec>(), trained.device->staging());
    if (!start.checkpoint.empty()) {
      load_checkpoint(start.checkpoint, manifest, trained.setup.model, {}, trained.state,
                      saved * parameters);
    }
  });
  return trained;
}

TrainedModel initial_model(const RunConfig& config, const DataFacts& facts,
                           dist::Session& session) {
  TrainedModel made;
  made.config = config;
  const int threads = agree_on_run(config, session);
  made.device = std::make_unique<RunDevice>(config, session);
  made.budget_bytes = made.device->budget_bytes(config, session);
  made.setup = make_setup(config, facts, threads);
  made.compute = std::make_unique<ComputeSession>(threads);
  made.device->use_kernels(session);
  made.optimizer = optim::make_optimizer(config);
  made.tier = made.device->make_tier(made.budget_bytes);
  made.setup.step.optimizer_states.clear();
  const exec::DeviceScope scope(*made.tier);
  made.state = exec::initial_state(made.device->compute(), made.setup.model,
                                   made.setup.declaration.precision,
                                   static_cast<std::uint64_t>(config.train.seed),
                                   std::vector<StateSpec>(), made.device->staging());
  return made;
}

}  // namespace garonne::train
