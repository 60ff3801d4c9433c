#include "train/setup/planning.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <string>
#include <string_view>

#include "base/bytes.hpp"
#include "base/cache_folder.hpp"
#include "base/error.hpp"
#include "base/precision.hpp"
#include "base/product_rounding.hpp"
#include "nn/model_kind.hpp"
#include "optim/optimizer.hpp"
#include "plan/model/step_costs.hpp"
#include "plan/pipeline/pipeline_stage.hpp"
#include "plan/program/live_bytes.hpp"
#include "plan/step/rank_program.hpp"
#include "train/evaluation/evaluation.hpp"
#include "train/plans/layout_check.hpp"
#include "train/setup/available_memory.hpp"
#include "train/setup/lower_tiers.hpp"
#include "train/setup/no_decay.hpp"
#include "train/setup/pipeline_schedule.hpp"
#include "train/setup/run_device.hpp"
#include "train/setup/size_check.hpp"
#include "train/workload/workload_kind.hpp"

namespace garonne::train {

namespace {

void check_complex_weights(const RunConfig& config, const plan::ModelGraph& graph) {
  if (config.optimizer.complex == "independent") return;
  const auto complex = [](const plan::ParameterSpec& parameter) { return parameter.complex; };
  if (std::any_of(graph.parameters.begin(), graph.parameters.end(), complex)) return;
  throw ConfigError("optimizer.complex", config.optimizer.complex,
                    fmt::format("has no meaning for model.kind = {}, whose weights are real; "
                                "leave it out",
                                config.model.kind));
}

void check_products(const RunConfig& config, const nn::Declaration& declaration) {
  if (declaration.products == ProductRounding::Ieee) return;
  if (!declaration.device.is_gpu()) {
    throw ConfigError("train.products", config.train.products,
                      fmt::format("is how GPUs may multiply, and the device of this run is none "
                                  "(run.device = \"{}\"); set it to \"ieee\"",
                                  config.run.device));
  }
  if (declaration.precision == Precision::Float32) return;
  throw ConfigError("train.products", config.train.products,
                    fmt::format("is for products of float32 numbers, which train.precision = {} "
                                "has none of; set it to \"ieee\"",
                                config.train.precision));
}

// Blocks are counted in what a rank holds, and a checkpoint has to fit other grids.
void check_state_blocks(const RunConfig& config, const std::vector<StateSpec>& states) {
  for (const StateSpec& state : states) {
    if (state.blocks.elementwise() || state.blocks.of_whole() || config.grid.tensor == 1) continue;
    throw ConfigError(
        "grid.tensor", fmt::format("{}", config.grid.tensor),
        fmt::format("cuts parameters, and optimizer.name = {} keeps {} of blocks of {} elements; "
                    "use grid.data with grid.zero, or grid.pipeline",
                    config.optimizer.name, state.name, state.blocks.elements));
  }
}

nn::ModelRequest request_of(const Setup& setup) {
  return {.config = setup.config,
          .vocabulary = setup.facts.vocabulary,
          .fields = setup.facts.fields,
          .declaration = setup.declaration};
}

}  // namespace

std::string describe_numbers(const RunConfig& config) {
  const bool rounded = parse_product_rounding(config.train.products) == ProductRounding::Tf32;
  return config.train.precision + (rounded ? ", products in TF32" : "");
}

std::string describe_sizes(const Setup& setup) {
  return nn::model_kind(setup.config.model.kind).describe(request_of(setup));
}

Setup make_setup(const RunConfig& config, const DataFacts& facts, int threads, int rank,
                 const std::optional<plan::DeviceFacts>& device) {
  workload_kind(config.model.kind).check_sizes(config, facts);
  Setup setup;
  setup.config = config;
  setup.grid = Grid({static_cast<int>(config.grid.data), static_cast<int>(config.grid.pipeline),
                     static_cast<int>(config.grid.tensor)});
  setup.declaration.precision = parse_precision(config.train.precision);
  setup.declaration.products = parse_product_rounding(config.train.products);
  setup.declaration.device = device ? *device : device_facts(config);
  check_products(config, setup.declaration);
  setup.declaration.granularity = setup.declaration.device.granularity();
  // No scratch on a GPU is by threads of the host, and plans are the same on every login node.
  setup.declaration.threads = setup.declaration.device.is_gpu() ? 1 : threads;
  setup.facts = facts;
  if (facts.validation_samples && validation_micro_batches(config, *facts.validation_samples) == 0)
    setup.config.evaluation.batches = 0;
  nn::ModelRequest request = request_of(setup);
  request.tensor = setup.grid.coordinates_of(rank).tensor;
  request.tensor_ranks = setup.grid.shape().tensor;
  setup.model = nn::model_kind(config.model.kind).make(request);
  apply_no_decay(config.optimizer.no_decay, setup.model.graph.parameters);
  apply_weight_decays(config.optimizer.weight_decays, config.optimizer.no_decay,
                      setup.model.graph.parameters);

  check_complex_weights(config, setup.model.graph);
  plan::estimate_seconds(plan::NominalRates(), setup.model.graph);
  plan::set_collective_seconds(request.tensor_ranks, setup.step.links.tensor, setup.model.graph);
  setup.declared = std::make_shared<const plan::ModelGraph>(setup.model.graph);

  const Precision precision = setup.declaration.precision;
  plan::StepShape& step = setup.step;
  step.micro_batches = static_cast<int>(micro_batches_per_rank(config));
  check_planned_nodes(config, setup.model.graph, step.micro_batches);
  step.granularity = setup.declaration.granularity;
  step.workspaces = plan::library_workspaces(setup.declaration.device);
  // Each stage of a pipeline has those of all.
  if (setup.declaration.device.is_gpu()) {
    for (const nn::ConstantTable& table : nn::constant_tables(setup.model, precision))
      step.workspaces.push_back({table.name, table.bytes});
  }
  step.element_bytes.parameter = compute_bytes(precision);
  step.element_bytes.master = has_master(precision) ? state_bytes(precision) : 0;
  step.element_bytes.gradient = state_bytes(precision);
  step.element_bytes.state = state_bytes(precision);
  if (config.grid.gradient_wire == "compute" && precision == Precision::BFloat16)
    step.gradient_wire = compute_type(precision);
  step.message_form = plan::message_form(config.grid.messages);
  const auto optimizer = optim::make_optimizer(config);
  step.optimizer_states = optimizer->states();
  step.tensor_sums = optimizer->sums();
  check_state_blocks(config, step.optimizer_states);
  step.data_group = setup.grid.group(Axis::Data, 0);
  step.tensor_group = setup.grid.group(Axis::Tensor, 0);
  step.tensor_bucket_bytes = config.grid.bucket;
  step.world_group.resize(static_cast<std::size_t>(setup.grid.ranks()));
  std::iota(step.world_group.begin(), step.world_group.end(), 0);
  step.zero = step.data_group.size() > 1 ? static_cast<int>(config.grid.zero) : 0;
  step.bucket_bytes = step.data_group.size() > 1 ? config.grid.bucket : 0;
  setup.ranks_on_node = setup.grid.ranks();
  add_lower_tiers(setup);
  return setup;
}

int stage_with_loss(const Setup& whole) {
  if (whole.config.grid.pipeline == 1) return 0;
  const plan::PipelineSchedule schedule = pipeline_schedule_of(whole);
  return plan::pipeline_routes(schedule.placement, schedule.devices, schedule.chunks)
      .front()
      .back()
      .device;
}

namespace {

// Puts global ranks into what a stage knows of the others.
plan::PipelinePlace place_in_grid(plan::PipelinePlace place, const Grid& grid) {
  place.group = grid.group(Axis::Pipeline, 0);
  for (int& member : place.tied_group) member = grid.rank_of({0, member, 0});
  return place;
}

}  // namespace

void put_in_pipeline(plan::PipelinePlace place, const Setup& setup, plan::StepShape& step) {
  step.pipeline = std::move(place);
  step.message_form =
      plan::decided_message_form(step.message_form, setup.grid.shape(), setup.ranks_on_node);
}

Setup setup_of_stage(const Setup& whole, int stage, Cut cut) {
  Setup setup = whole;
  if (whole.config.grid.pipeline == 1) return setup;
  check_parts(whole);
  const plan::ModelGraph& by_seconds = whole.cut_by ? *whole.cut_by : whole.model.graph;
  plan::PipelineStage mine = plan::make_pipeline_stage(
      whole.model.graph, cut == Cut::AsDeclared ? *whole.declared : by_seconds,
      pipeline_schedule_of(whole), stage);
  setup.model = nn::cut_model(whole.model, mine.cut);
  put_in_pipeline(place_in_grid(std::move(mine.place), setup.grid), whole, setup.step);
  return setup;
}

Setup setup_of_generator(const Setup& setup, const nn::GeneratorRows& rows, int rank) {
  const nn::ModelKind& kind = nn::model_kind(setup.config.model.kind);
  if (!kind.make_generator)
    throw ConfigError("model.kind", kind.name, "learns from fields, and writes no text");
  nn::ModelRequest request = request_of(setup);
  request.tensor = setup.grid.coordinates_of(rank).tensor;
  request.tensor_ranks = setup.grid.shape().tensor;
  Setup result = setup;
  result.model = kind.make_generator(request, rows);
  result.step.micro_batches = 1;
  if (setup.grid.shape().pipeline == 1) return result;
  plan::PipelineStage stage =
      plan::make_pipeline_stage(result.model.graph, *setup.declared, pipeline_schedule_of(setup),
                                setup.grid.coordinates_of(rank).pipeline);
  result.model = nn::cut_model(result.model, stage.cut);
  put_in_pipeline(place_in_grid(std::move(stage.place), setup.grid), setup, result.step);
  return result;
}

plan::PipelineStage declared_stage(const Setup& setup, int stage) {
  check_parts(setup);
  plan::PipelineStage result =
      plan::make_pipeline_stage(*setup.declared, pipeline_schedule_of(setup), stage);
  result.place = place_in_grid(std::move(result.place), setup.grid);
  return result;
}

std::int64_t whole_parameter_elements(const nn::Model& model) {
  std::int64_t elements = 0;
  for (const auto& box : model.boxes) elements += nn::whole_box(box.global).elements();
  return elements;
}

bool apply_costs(const plan::CostTable& costs, Setup& setup) {
  if (setup.below.tiers.contains(Tier::Disk)) {
    const auto found = costs.disks.find(disk_of(setup.config.memory.disk));
    if (found != costs.disks.end()) set_disk_rates(found->second, setup);
  }
  return plan::apply_costs(costs, setup.config.optimizer.name, setup.config.train.precision,
                           setup.model.graph, setup.step);
}

// The ranks of its tied group, at the rank's own place on the other axes.
std::vector<int> tied_members(const Setup& setup, int rank) {
  std::vector<int> members;
  for (const int other : setup.step.pipeline.tied_group) {
    Coordinates place = setup.grid.coordinates_of(rank);
    place.pipeline = setup.grid.coordinates_of(other).pipeline;
    members.push_back(setup.grid.rank_of(place));
  }
  return members;
}

plan::Program program_of_rank(const Setup& setup, plan::Program program, int rank) {
  return plan::program_of_rank(
      std::move(program), setup.model.graph,
      {rank, setup.grid.coordinates_of(rank), setup.grid.group(Axis::Data, rank),
       setup.grid.group(Axis::Tensor, rank), setup.grid.group(Axis::Pipeline, rank),
       tied_members(setup, rank)});
}

MemoryTable memory_table(const plan::Prediction& prediction, std::int64_t budget_bytes,
                         std::int64_t saved_copy_bytes) {
  MemoryTable table;
  const std::map<std::string_view, std::int64_t*> rows = {
      {"parameters", &table.parameters}, {"gradients", &table.gradients},
      {"optimizer", &table.optimizer},   {"values", &table.activations},
      {"records", &table.activations},   {"value gradients", &table.activations},
      {"transients", &table.transients}, {"communication", &table.communication},
      {"gathered", &table.gathered},     {"libraries", &table.libraries}};
  for (int kind = 0; kind < plan::buffer_kinds; ++kind) {
    *rows.at(plan::memory_row(static_cast<plan::BufferKind>(kind))) +=
        prediction.peak_by_kind[static_cast<std::size_t>(kind)];
  }
  table.transients += prediction.peak_transient_bytes;
  table.peak = prediction.peak_bytes;
  table.saved_copy = saved_copy_bytes;
  table.free = budget_bytes - table.peak - table.saved_copy;
  return table;
}

std::string format_memory_table(const MemoryTable& table, std::int64_t budget_bytes) {
  std::string text = "memory of a rank at the planned peak\n";
  const std::int64_t whole = budget_bytes > 0 ? budget_bytes : table.peak;
  const auto row = [&](const char* name, std::int64_t bytes) {
    text += fmt::format("  {:<14}{:>16} B {:>12}  {:5.1f} %\n", name, bytes, format_bytes(bytes),
                        100.0 * static_cast<double>(bytes) / static_cast<double>(whole));
  };
  row("parameters", table.parameters);
  row("gradients", table.gradients);
  row("optimizer", table.optimizer);
  row("activations", table.activations);
  row("transients", table.transients);
  row("communication", table.communication);
  if (table.gathered > 0) row("gathered", table.gathered);
  if (table.libraries > 0) row("libraries", table.libraries);
  row("peak", table.peak);
  if (table.saved_copy > 0) row("saved copy", table.saved_copy);
  if (budget_bytes > 0) {
    row("free", table.free);
    row("budget", budget_bytes);
  }
  return text;
}

std::int64_t resolve_budget(const RunConfig& config, int ranks_on_node) {
  if (config.memory.budget != RunConfig::automatic_budget) return config.memory.budget;
  if (device_kind(config) == DeviceKind::Cuda) {
    throw ConfigError(
        "memory.budget", "auto",
        "is what a GPU has free when the run starts there; give a number of bytes, or "
        "a file of the cluster (--cluster)");
  }
  const AvailableMemory found = available_memory(MemorySources::of_this_process(), ranks_on_node);
  if (found.bytes > 0) return found.bytes;
  throw ConfigError("memory.budget", "auto",
                    (found.source.empty() ? "what is free cannot be found out here"
                                          : "nothing is free by " + found.source) +
                        "; give a number of bytes");
}

}  // namespace garonne::train
