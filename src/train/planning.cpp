#include "train/planning.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <numeric>
#include <string>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/precision.hpp"
#include "exec/profile.hpp"
#include "optim/optimizer.hpp"
#include "plan/step_costs.hpp"

namespace garonne::train {

Setup make_setup(const RunConfig& config, std::int64_t vocabulary, int threads) {
  Setup setup;
  setup.config = config;
  setup.grid = Grid({static_cast<int>(config.grid.data), static_cast<int>(config.grid.pipeline),
                     static_cast<int>(config.grid.tensor)});
  setup.declaration.precision = parse_precision(config.train.precision);
  setup.declaration.threads = threads;
  const auto& keys = config.model;
  if (keys.vocabulary > 0 && keys.vocabulary < vocabulary) {
    throw ConfigError("model.vocabulary", fmt::format("{}", keys.vocabulary),
                      fmt::format("is smaller than the data's vocabulary of {}", vocabulary));
  }
  setup.sizes = {
      keys.layers, keys.hidden, keys.heads, keys.sequence, std::max(keys.vocabulary, vocabulary),
      keys.dropout};
  setup.model = nn::make_gpt(setup.sizes, config.train.micro_batch, setup.declaration);

  plan::estimate_seconds(plan::NominalRates(), setup.model.graph);

  const Precision precision = setup.declaration.precision;
  plan::StepShape& step = setup.step;
  step.micro_batches = static_cast<int>(micro_batches_per_rank(config));
  step.element_bytes.parameter = compute_bytes(precision);
  step.element_bytes.master = has_master(precision) ? state_bytes(precision) : 0;
  step.element_bytes.gradient = state_bytes(precision);
  step.element_bytes.state = state_bytes(precision);
  step.optimizer_states = optim::make_optimizer(config)->state_names();
  step.data_group = setup.grid.group(Axis::Data, 0);
  step.world_group.resize(static_cast<std::size_t>(setup.grid.ranks()));
  std::iota(step.world_group.begin(), step.world_group.end(), 0);
  step.bucket_bytes = step.data_group.size() > 1 ? config.grid.bucket : 0;
  return setup;
}

bool apply_costs(const plan::CostTable& costs, Setup& setup) {
  return plan::apply_costs(costs, setup.config.optimizer.name, setup.config.train.precision,
                           setup.model.graph, setup.step);
}

plan::StepShape step_of_rank(const Setup& setup, int rank) {
  plan::StepShape step = setup.step;
  step.data_group = setup.grid.group(Axis::Data, rank);
  return step;
}

Choice choose_program(const Setup& setup, std::int64_t budget_bytes) {
  return choose_program(setup, budget_bytes, setup.config.memory.plan, Effort::All);
}

Choice choose_program(const Setup& setup, std::int64_t budget_bytes, const std::string& wanted,
                      Effort effort) {
  Choice choice;
  std::int64_t evaluation_peak = 0;
  if (setup.config.evaluation.batches > 0) {
    choice.evaluation =
        plan::make_forward_program(setup.model.graph, setup.step, setup.model.graph.loss);
    choice.evaluation_prediction = plan::replay(choice.evaluation);
    choice.evaluation.peak_bytes = evaluation_peak = choice.evaluation_prediction.peak_bytes;
    choice.evaluation.seconds = choice.evaluation_prediction.seconds;
    choice.evaluation.budget_bytes = budget_bytes;
    choice.evaluation.name = "forward-only";
  }
  plan::StagePlan stage = plan::plan_stage(setup.model.graph, setup.step,
                                           {budget_bytes, wanted, evaluation_peak,
                                            effort == Effort::FirstThatFits, exec::cache_folder()});
  choice.program = std::move(stage.program);
  choice.prediction = std::move(stage.prediction);
  choice.candidates = std::move(stage.candidates);
  choice.minimum_budget_bytes = stage.minimum_budget_bytes;
  return choice;
}

bool is_hopeless(const Setup& setup, std::int64_t budget_bytes) {
  plan::ModelGraph graph = setup.model.graph;
  for (auto& node : graph.nodes) {
    node.forward.transient_bytes = node.forward_keep.transient_bytes =
        node.backward.transient_bytes = node.backward_weight.transient_bytes = 0;
  }
  try {
    plan::plan_stage(graph, setup.step, {budget_bytes, setup.config.memory.plan, 0, true});
    return false;
  } catch (const PlanError&) {
    return true;
  }
}

plan::Program program_of_rank(const Setup& setup, const Choice& choice, int rank) {
  plan::Program program = choice.program;
  program.rank = rank;
  program.coordinates = setup.grid.coordinates_of(rank);
  for (auto& instruction : program.instructions) {
    if (instruction.channel && instruction.channel->group == "data")
      instruction.channel->members = setup.grid.group(Axis::Data, rank);
  }
  return program;
}

MemoryTable memory_table(const plan::Prediction& prediction, std::int64_t budget_bytes) {
  const auto bytes = [&](plan::BufferKind kind) {
    return prediction.peak_by_kind[static_cast<std::size_t>(kind)];
  };
  MemoryTable table;
  table.parameters = bytes(plan::BufferKind::Parameter) + bytes(plan::BufferKind::MasterParameter);
  table.gradients = bytes(plan::BufferKind::Gradient);
  table.optimizer = bytes(plan::BufferKind::OptimizerState);
  table.activations = bytes(plan::BufferKind::Value) + bytes(plan::BufferKind::Record) +
                      bytes(plan::BufferKind::ValueGradient);
  table.communication = bytes(plan::BufferKind::Communication);
  table.transients = prediction.peak_transient_bytes + bytes(plan::BufferKind::Scalar);
  table.peak = prediction.peak_bytes;
  table.free = budget_bytes - table.peak;
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
  row("peak", table.peak);
  if (budget_bytes > 0) {
    row("free", table.free);
    row("budget", budget_bytes);
  }
  return text;
}

std::int64_t resolve_budget(const RunConfig& config, int ranks_on_node) {
  if (config.memory.budget != RunConfig::automatic_budget) return config.memory.budget;
  std::ifstream file("/proc/meminfo");
  std::string name;
  std::int64_t kibibytes = 0;
  std::string unit;
  while (file >> name >> kibibytes >> unit) {
    if (name == "MemAvailable:")
      return kibibytes * 1024 / ranks_on_node / cpu_allocation_granularity *
             cpu_allocation_granularity;
  }
  throw ConfigError("memory.budget", "auto",
                    "what is free cannot be found out here; give a number of bytes");
}

}  // namespace garonne::train
