#include "train/plans/memory_sweep.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>
#include <sstream>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "train/plans/grid_plan.hpp"
#include "train/setup/planning.hpp"
#include "train/workload/workload_kind.hpp"

namespace garonne::train {
namespace {

// The value itself, and powers of two from two below to three above the one under it.
std::vector<std::int64_t> sizes_around(std::int64_t value) {
  std::int64_t power = 1;
  while (power * 2 <= value) power *= 2;
  std::set<std::int64_t> sizes = {value};
  for (const std::int64_t size : {power / 4, power / 2, power, power * 2, power * 4, power * 8}) {
    if (size >= 1) sizes.insert(size);
  }
  return {sizes.begin(), sizes.end()};
}

SweepCell plan_cell(const RunConfig& config, const DataFacts& facts, int threads,
                    const plan::CostTable& costs, std::int64_t budget_bytes) {
  Setup setup = make_setup(config, facts, threads);
  SweepCell cell;
  cell.batch = config.train.micro_batch;
  cell.sequence = config.model.sequence;
  cell.measured = apply_costs(costs, setup);
  const GridPlan fastest = plan_grid(setup, std::numeric_limits<std::int64_t>::max());
  cell.minimum_budget_bytes = fastest.minimum_budget_bytes;
  const PlannedStage& largest = fastest.stages[fastest.largest];
  cell.fastest_peak_bytes = std::max(largest.prediction.peak_bytes + largest.choice.reserved_bytes,
                                     cell.minimum_budget_bytes);
  cell.fits = cell.minimum_budget_bytes <= budget_bytes;
  cell.fastest_seconds = cell.measured ? fastest.seconds : 0;
  return cell;
}

}  // namespace

SweepAxes parse_sweep_axes(const std::string& text) {
  SweepAxes axes;
  std::istringstream stream(text);
  for (std::string name; std::getline(stream, name, ',');) {
    bool* axis = name == "batch" ? &axes.batch : name == "sequence" ? &axes.sequence : nullptr;
    if (axis == nullptr || *axis)
      throw ConfigError("--sweep", text, "is batch, sequence, or batch,sequence");
    *axis = true;
  }
  if (text.empty() || text.back() == ',')
    throw ConfigError("--sweep", text, "is batch, sequence, or batch,sequence");
  return axes;
}

MemorySweep memory_sweep(const RunConfig& config, const SweepAxes& axes, const DataFacts& facts,
                         int threads, const plan::CostTable& costs, std::int64_t budget_bytes,
                         const std::function<void(int, int)>& progress) {
  MemorySweep sweep;
  sweep.has_sequences = workload_kind(config.model.kind).tokens_per_sample(config) > 0;
  if (axes.sequence && !sweep.has_sequences) {
    throw ConfigError(
        "--sweep", "sequence",
        fmt::format("means nothing for model.kind = {}; use batch", config.model.kind));
  }
  sweep.budget_bytes = budget_bytes;
  sweep.configured_batch = config.train.micro_batch;
  sweep.configured_sequence = config.model.sequence;
  sweep.batches = axes.batch ? sizes_around(sweep.configured_batch)
                             : std::vector<std::int64_t>{sweep.configured_batch};
  sweep.sequences = axes.sequence ? sizes_around(sweep.configured_sequence)
                                  : std::vector<std::int64_t>{sweep.configured_sequence};
  const std::int64_t micro_batches = micro_batches_per_rank(config) * config.grid.data;
  const int all = static_cast<int>(sweep.batches.size() * sweep.sequences.size());
  for (const std::int64_t batch : sweep.batches) {
    for (const std::int64_t sequence : sweep.sequences) {
      RunConfig changed = config;
      changed.train.micro_batch = batch;
      changed.train.global_batch = batch * micro_batches;
      changed.model.sequence = sequence;
      sweep.cells.push_back(plan_cell(changed, facts, threads, costs, budget_bytes));
      progress(static_cast<int>(sweep.cells.size()), all);
    }
  }
  return sweep;
}

nlohmann::ordered_json to_json(const MemorySweep& sweep) {
  using nlohmann::ordered_json;
  const auto sequence_of = [&](std::int64_t sequence) {
    return sweep.has_sequences ? ordered_json(sequence) : ordered_json(nullptr);
  };
  ordered_json sequences = ordered_json::array();
  for (const std::int64_t sequence : sweep.sequences) sequences.push_back(sequence_of(sequence));
  ordered_json cells = ordered_json::array();
  for (const auto& cell : sweep.cells) {
    ordered_json row = {{"batch", cell.batch},
                        {"sequence", sequence_of(cell.sequence)},
                        {"minimum_budget_bytes", cell.minimum_budget_bytes},
                        {"fastest_peak_bytes", cell.fastest_peak_bytes},
                        {"fits", cell.fits},
                        {"costs", cell.measured ? "measured" : "declared"}};
    row["fastest_seconds"] =
        cell.measured ? ordered_json(cell.fastest_seconds) : ordered_json(nullptr);
    cells.push_back(std::move(row));
  }
  return {
      {"format", "garonne.sweep"},
      {"version", 1},
      {"budget_bytes", sweep.budget_bytes},
      {"configured",
       {{"batch", sweep.configured_batch}, {"sequence", sequence_of(sweep.configured_sequence)}}},
      {"batches", sweep.batches},
      {"sequences", std::move(sequences)},
      {"cells", std::move(cells)}};
}

std::string format_sweep(const MemorySweep& sweep) {
  std::string text;
  const auto table = [&](const char* title, std::int64_t SweepCell::*bytes) {
    text += fmt::format("{}, by batch{}\n", title, sweep.has_sequences ? " and sequence" : "");
    if (sweep.has_sequences) {
      text += fmt::format("{:>8}", "");
      for (const std::int64_t sequence : sweep.sequences) text += fmt::format("{:>12} ", sequence);
      text += '\n';
    }
    auto cell = sweep.cells.begin();
    for (const std::int64_t batch : sweep.batches) {
      text += fmt::format("{:>8}", batch);
      for (std::size_t i = 0; i < sweep.sequences.size(); ++i, ++cell) {
        const std::int64_t value = (*cell).*bytes;
        text +=
            fmt::format("{:>12}{}", format_bytes(value), value <= sweep.budget_bytes ? ' ' : '!');
      }
      text += '\n';
    }
  };
  table("smallest budget of a rank", &SweepCell::minimum_budget_bytes);
  table("peak of the fastest plan, as without a limit", &SweepCell::fastest_peak_bytes);
  text += fmt::format("! = beyond the budget of {} B ({}); batch = train.micro_batch\n",
                      sweep.budget_bytes, format_bytes(sweep.budget_bytes));
  return text;
}

}  // namespace garonne::train
