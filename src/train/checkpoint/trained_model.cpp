#include "train/checkpoint/trained_model.hpp"

#include <ATen/Functions.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "base/contains.hpp"
#include "base/error.hpp"
#include "base/hash.hpp"
#include "exec/profile/cached_costs.hpp"
#include "exec/profile/profile.hpp"
#include "nn/element_type.hpp"
#include "nn/tensor_options.hpp"
#include "train/checkpoint/checkpoint.hpp"
#include "train/checkpoint/shard_reader.hpp"
#include "train/run/run_directory.hpp"
#include "train/setup/config_choices.hpp"
#include "train/setup/rank_agreement.hpp"
#include "train/setup/rank_start.hpp"
#include "train/workload/workload_kind.hpp"

namespace garonne::train {

exec::RankResources TrainedModel::resources() {
  return resources_of({.device = *device,
                       .tier = *tier,
                       .state = state,
                       .products = products,
                       .optimizer = optimizer.get(),
                       .axes = axes.get(),
                       .below = &below});
}

namespace {

// A checkpoint of the run, that which it began with, or none: what it began with is the seed's.
struct SavedPoint {
  StartingPoint start;
  bool of_run = false;     // its manifest speaks of the run
  AllowedTensors allowed;  // by which it may differ from the run's model
};

SavedPoint saved_point(const RunConfig& config, std::int64_t step,
                       const std::function<void(const std::string&)>& warn) {
  const std::string& run_directory = config.run.directory;
  SavedPoint saved;
  StartingPoint& start = saved.start;
  saved.of_run = true;
  if (step < 0) {
    start = find_starting_point(config, warn);
    if (start.checkpoint.empty())
      throw IoError(run_directory, "has no checkpoint yet; --step 0 is what the run began with");
  } else {
    const auto steps = list_checkpoints(run_directory);
    const bool is_saved = contains(steps, step);
    if (!is_saved && step == 0) {
      saved.of_run = false;
      if (const auto beginning = beginning_of_run(run_directory)) {
        start = open_beginning(run_directory, *beginning);
        start.step = 0;
        saved.allowed.missing = beginning->missing;
      }
      return saved;
    }
    if (!is_saved) {
      throw IoError(
          run_directory,
          fmt::format("has no checkpoint of step {}; there are {}", step,
                      steps.empty() ? "none" : fmt::format("{}", fmt::join(steps, ", "))));
    }
    start.checkpoint = checkpoint_path(run_directory, step);
    start.manifest = verify_checkpoint_of_step(run_directory, step);
    start.step = start.manifest.step;
  }
  return saved;
}

// As the run itself begins: by its data where it has no checkpoint.
DataFacts facts_at(const SavedPoint& saved, const RunConfig& config) {
  const WorkloadKind& kind = workload_kind(config.model.kind);
  return saved.of_run
             ? kind.facts_of_checkpoint(config, saved.start.manifest, saved.start.checkpoint)
             : kind.open(config, "data.validation")->facts();
}

// What is trained runs forward only, perhaps on another machine than what trained.
void use_memory(const Overrides& memory, RunConfig& config) {
  const std::int64_t of_run = config.memory.budget;
  config.memory = RunConfig().memory;
  config.memory.budget = of_run;
  for (const KeySpec& key : config_keys(config_choices())) {
    for (const auto& [name, value] : memory) {
      if (name == key.name) key.set(config, value);
    }
  }
}

// What forwards need of a grid; the run's own keys are of training.
RunConfig::GridKeys grid_keys(const std::optional<GridShape>& grid) {
  RunConfig::GridKeys keys;
  if (grid) {
    keys.data = grid->data;
    keys.pipeline = grid->pipeline;
    keys.tensor = grid->tensor;
  }
  return keys;
}

void open_axes(TrainedModel& trained, dist::Session& session) {
  const int rank = session.rank();
  plan::Program largest;
  session.agree([&] {
    const plan::ModelGraph& graph = trained.setup.model.graph;
    largest = program_of_rank(
        trained.setup, plan::make_forward_program(graph, trained.setup.step, graph.loss), rank);
  });
  trained.axes = std::make_unique<Axes>(trained.setup, largest, *trained.device, session);
  session.set_coordinates(to_string(trained.setup.grid.coordinates_of(rank)));
}

// What runs forward only has no use for states of the optimizer; and a run that has them below its
// device may have no room for them on it.
void make_room_for_parameters(TrainedModel& trained) {
  trained.optimizer = optim::make_optimizer(trained.config);
  trained.tier = trained.device->make_tier(trained.budget_bytes);
  trained.setup.step.optimizer_states.clear();
}

void make_state(TrainedModel& trained) {
  const plan::Program* const program = trained.placement.program();
  if (program == nullptr) {
    trained.state = first_state_without_optimizer(trained.setup, *trained.device, *trained.tier);
    return;
  }
  trained.state = first_state(trained.setup, *program, *trained.device, *trained.tier);
  trained.below = make_lower_tiers(trained.setup, *program, *trained.device, trained.state);
}

// Of this rank's part of a model that has so many.
void load_parameters(const SavedPoint& saved_as, std::size_t parameters, TrainedModel& trained) {
  // What was imported has parameters alone.
  const Manifest& manifest = saved_as.start.manifest;
  const bool is_imported = manifest.tensors.size() == parameters;
  const std::size_t saved = is_imported ? 1 : 1 + trained.optimizer->states().size();
  make_state(trained);
  if (!saved_as.start.checkpoint.empty()) {
    const exec::DeviceScope scope(*trained.tier);
    load_checkpoint(saved_as.start.checkpoint, manifest, trained.setup.model, {}, trained.state,
                    saved_as.of_run ? saved * parameters : manifest.tensors.size(),
                    saved_as.allowed);
  }
}

}  // namespace

TrainedModel open_trained_model(const std::string& run_directory, std::int64_t step,
                                dist::Session& session, const std::optional<GridShape>& grid,
                                bool validation, const Overrides& memory) {
  const auto warn = [&](const std::string& text) {
    if (session.rank() == 0) fmt::print(stderr, "warning: {}\n", text);
  };
  TrainedModel trained;
  session.agree([&] { trained.config = run_directory_config(run_directory); });
  trained.identity = hash_text(config_to_toml(trained.config));
  // Each rank may have a copy of its own.
  trained.config.run.directory.clear();
  const int threads = agree_on_run(trained.config, session);
  trained.config.grid = grid_keys(grid);
  if (grid) session.agree([&] { check_grid(trained.config, session.size()); });
  session.agree([&] { use_memory(memory, trained.config); });
  trained.config.run.directory = run_directory;
  trained.config.run.resume = "auto";
  trained.device = std::make_unique<RunDevice>(trained.config, session);
  trained.budget_bytes = trained.device->budget_bytes(trained.config, session);
  SavedPoint saved_as;
  session.agree([&] { saved_as = saved_point(trained.config, step, warn); });
  const StartingPoint& start = saved_as.start;
  const Manifest& manifest = start.manifest;
  const nlohmann::json products = nn::choices_for(trained.device->kind(), manifest.products);
  dist::agree_on(session, [&] {
    dist::Facts facts = checkpoint_facts(start);
    dist::append(product_facts(products), facts);
    return facts;
  });
  trained.step = start.step;
  if (!start.checkpoint.empty()) trained.identity = manifest.hash;
  if (saved_as.of_run) trained.data = manifest.data;
  // What is in the manifest is compared with the paths that were given.
  session.agree([&] { trained.config = with_found_data(trained.config, run_directory); });
  if (!validation) {
    trained.config.data.validation.clear();
    trained.config.data.validation_period.clear();
  }
  // A schedule is of steps, in which every data rank and every stage has something to do.
  if (grid) {
    trained.config.train.global_batch =
        trained.config.train.micro_batch * grid->data * grid->pipeline;
  }
  session.agree([&] {
    trained.setup = make_setup(trained.config, facts_at(saved_as, trained.config), threads,
                               grid ? session.rank() : 0);
  });
  agree_on_lower_budgets(trained.setup, trained.budget_bytes, session);
  const std::size_t parameters = trained.setup.model.graph.parameters.size();
  trained.compute = start_computing(threads, *trained.device, session);
  session.agree([&] {
    // What was measured on this machine is nearer the truth than what nodes declare.
    apply_costs(exec::load_cached_costs(trained.device->machine_text(threads), warn),
                trained.setup);
    if (const auto refusal = nn::Products::refusal_of(products)) {
      warn(fmt::format("{}; last bits may differ", refusal->what()));
    } else {
      trained.products = nn::Products::from_json(products);
    }
    make_room_for_parameters(trained);
    const int rank = grid ? session.rank() : 0;
    trained.setup = setup_of_stage(trained.setup, trained.setup.grid.coordinates_of(rank).pipeline,
                                   Cut::AsDeclared);
    trained.placement = ParameterPlacement(trained.setup, trained.budget_bytes);
  });
  if (const plan::Program* const program = trained.placement.program())
    pin_host_tier(*program, *trained.device);
  session.agree([&] { load_parameters(saved_as, parameters, trained); });
  if (trained.setup.grid.ranks() > 1) open_axes(trained, session);
  return trained;
}

namespace {

// The whole of a parameter from the shards of a checkpoint.
at::Tensor read_parameter(const ShardReader& reader, const StartingPoint& start,
                          const plan::ParameterSpec& spec, const std::vector<std::int64_t>& shape,
                          at::ScalarType type) {
  const GlobalTensor wanted{spec.name, type == at::kDouble ? "F64" : "F32", shape};
  const auto& saved = start.manifest.tensors;
  const bool is_there = std::any_of(saved.begin(), saved.end(), [&](const GlobalTensor& tensor) {
    return tensor.name == wanted.name && tensor.shape == wanted.shape && tensor.type == wanted.type;
  });
  if (!is_there) {
    throw IoError(start.checkpoint, fmt::format("is of another model: it lacks {} as {} [{}]",
                                                wanted.name, wanted.type, fmt::join(shape, ", ")));
  }
  at::Tensor whole = at::empty(spec.shape, nn::host_tensor_options(type));
  const std::span<std::byte> bytes(static_cast<std::byte*>(whole.data_ptr()), whole.nbytes());
  const auto element = static_cast<std::int64_t>(whole.element_size());
  reader.read(wanted, nn::whole_box(shape), 0, whole.numel(),
              [&](std::int64_t to, std::int64_t elements, const ShardReader::Bring& bring) {
                bring(0, bytes.subspan(static_cast<std::size_t>(to * element),
                                       static_cast<std::size_t>(elements * element)));
              });
  return whole;
}

// As a run begins with it: a model of this parameter alone.
at::Tensor initial_parameter(const Setup& setup, std::size_t number) {
  nn::Model alone;
  alone.graph.parameters = {setup.model.graph.parameters[number]};
  alone.initialisations = {setup.model.initialisations[number]};
  alone.boxes = {setup.model.boxes[number]};
  return exec::initial_state(Queue(), alone, setup.declaration.precision,
                             static_cast<std::uint64_t>(setup.config.train.seed),
                             std::vector<StateSpec>())
      .parameter(0)
      .trained();
}

}  // namespace

StoredModel open_stored_model(const std::string& run_directory, std::int64_t step,
                              const std::function<void(const std::string&)>& warn) {
  StoredModel stored;
  stored.config = run_directory_config(run_directory);
  stored.config.run.directory = run_directory;
  stored.config.run.resume = "auto";
  stored.config.grid = RunConfig::GridKeys();
  const auto saved = std::make_shared<const SavedPoint>(saved_point(stored.config, step, warn));
  const StartingPoint& start = saved->start;
  stored.step = start.step;
  stored.config = with_found_data(stored.config, run_directory);
  // Nothing is computed.
  stored.config.run.device = "cpu";
  stored.config.train.products = RunConfig().train.products;
  stored.config.memory = RunConfig().memory;
  // Nothing is validated.
  RunConfig alone = stored.config;
  alone.data.validation.clear();
  alone.data.validation_period.clear();
  stored.setup = make_setup(stored.config, facts_at(*saved, alone), /*threads=*/1);
  std::shared_ptr<const ComputeSession> compute;
  if (!saved->of_run) compute = std::make_shared<const ComputeSession>(1);
  std::shared_ptr<const ShardReader> reader;
  if (!start.checkpoint.empty())
    reader = std::make_shared<const ShardReader>(start.checkpoint, start.manifest);
  stored.parameter = [setup = stored.setup, saved, compute, reader](std::size_t number) {
    const plan::ParameterSpec& spec = setup.model.graph.parameters.at(number);
    const auto is_it = [&](const GlobalTensor& tensor) { return tensor.name == spec.name; };
    const auto& tensors = saved->start.manifest.tensors;
    const bool is_missing = is_named(saved->allowed.missing, spec.name) &&
                            std::none_of(tensors.begin(), tensors.end(), is_it);
    if (!reader || is_missing) return initial_parameter(setup, number);
    return read_parameter(*reader, saved->start, spec, setup.model.boxes.at(number).global,
                          nn::state_scalar_type(setup.declaration.precision));
  };
  return stored;
}

TrainedModel initial_model(const RunConfig& config, const DataFacts& facts,
                           dist::Session& session) {
  TrainedModel made;
  made.config = config;
  const int threads = agree_on_run(config, session);
  made.device = std::make_unique<RunDevice>(config, session);
  made.budget_bytes = made.device->budget_bytes(config, session);
  made.setup = make_setup(config, facts, threads);
  made.compute = start_computing(threads, *made.device, session);
  make_room_for_parameters(made);
  made.state = first_state_without_optimizer(made.setup, *made.device, *made.tier);
  return made;
}

}  // namespace garonne::train
