#include "train/report/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/json_input.hpp"
#include "base/json_output.hpp"
#include "base/key_limits.hpp"
#include "base/median.hpp"
#include "base/version.hpp"
#include "train/checkpoint/gpu_record.hpp"
#include "train/plans/budget_curve.hpp"
#include "train/plans/memory_sweep.hpp"
#include "train/plans/step_rates.hpp"
#include "train/plans/tier_rows.hpp"
#include "train/report/report_program.hpp"
#include "train/report/skill_page.hpp"
#include "train/report/spent_time.hpp"
#include "train/run/metrics_file.hpp"
#include "train/run/run_directory.hpp"
#include "train/setup/planning.hpp"
#include "train/workload/workload_kind.hpp"

namespace garonne::train {

// Made by the build from the files in src/train/report/.
std::string_view report_text(std::string_view name);

namespace {

using nlohmann::ordered_json;
namespace fs = std::filesystem;

// More rows than this are averaged in groups: nobody sees more points, and the page stays small.
constexpr std::size_t most_metrics_rows = 2000;

ordered_json metrics_json(const std::vector<StepMetrics>& rows) {
  const std::size_t together = (rows.size() + most_metrics_rows - 1) / most_metrics_rows;
  ordered_json step = ordered_json::array();
  ordered_json loss = ordered_json::array();
  ordered_json rate = ordered_json::array();
  ordered_json peak = ordered_json::array();
  ordered_json validation = ordered_json::array();
  for (std::size_t first = 0; first < rows.size(); first += together) {
    const std::size_t end = std::min(rows.size(), first + together);
    double loss_sum = 0;
    double rate_sum = 0;
    std::int64_t largest = 0;
    for (std::size_t i = first; i < end; ++i) {
      loss_sum += rows[i].loss;
      rate_sum += rows[i].items_per_second;
      largest = std::max(largest, rows[i].peak_bytes);
    }
    const auto count = static_cast<double>(end - first);
    step.push_back(rows[end - 1].step);
    loss.push_back(loss_sum / count);
    rate.push_back(rate_sum / count);
    peak.push_back(largest);
  }
  for (const auto& row : rows) {
    if (row.validation_loss) validation.push_back({row.step, *row.validation_loss});
  }
  return {{"steps_a_point", together},     {"step", std::move(step)},
          {"loss", std::move(loss)},       {"items_per_second", std::move(rate)},
          {"peak_bytes", std::move(peak)}, {"validation", std::move(validation)}};
}

ordered_json summary_json(const RunConfig& config, const std::vector<StepMetrics>& rows,
                          int threads) {
  std::vector<double> seconds;
  std::vector<double> data_seconds;
  std::vector<double> rates;
  std::int64_t peak = 0;
  for (const auto& row : rows) {
    seconds.push_back(row.seconds);
    data_seconds.push_back(row.data_seconds);
    rates.push_back(row.items_per_second);
    peak = std::max(peak, row.peak_bytes);
  }
  ordered_json validation = nullptr;
  for (const auto& row : rows) {
    if (row.validation_loss) validation = *row.validation_loss;
  }
  return {{"ranks", config.grid.data * config.grid.pipeline * config.grid.tensor},
          {"threads", threads},
          {"steps", rows.back().step},
          {"wanted_steps", config.train.steps},
          {"micro_batches", micro_batches_per_rank(config)},
          {"measured_peak_bytes", peak},
          {"planned_peak_bytes", rows.back().planned_peak_bytes},
          {"measured_seconds", high_median(seconds)},
          {"data_seconds", high_median(data_seconds)},
          {"items_per_second", high_median(rates)},
          {"item", rows.back().item == token_item ? "token" : "sample"},
          {"first_loss", rows.front().loss},
          {"last_loss", rows.back().loss},
          {"last_validation_loss", std::move(validation)}};
}

ordered_json memory_json(const RankProgram& rank) {
  const std::int64_t budget = rank.program.budget_bytes();
  const MemoryTable table = memory_table(rank.prediction, budget);
  ordered_json memory = {{"parameters", table.parameters},
                         {"optimizer", table.optimizer},
                         {"gradients", table.gradients},
                         {"activations", table.activations},
                         {"communication", table.communication + table.gathered},
                         {"transients", table.transients},
                         {"peak", table.peak},
                         {"free", table.free},
                         {"budget", budget}};
  if (table.libraries > 0) memory["libraries"] = table.libraries;
  for (const TierRow& row : tier_rows(rank.program, rank.prediction))
    memory["below"][std::string(to_string(row.tier))] = {row.peak_bytes, row.budget_bytes};
  return memory;
}

// What choices.json says of the machine.
struct RunMachine {
  int threads = 0;
  std::optional<device::GpuFacts> gpu = {};
};

RunMachine machine_of_run(const std::string& run_directory) {
  const std::string path = run_directory + "/choices.json";
  const nlohmann::json json = parse_json(read_text_file(path), path, FileOwner::Run);
  const JsonFile choices(json, path, FileOwner::Run);
  choices.root().expect_format("garonne.choices", 1);
  RunMachine machine{.threads =
                         static_cast<int>(choices.root().key("threads").integer(1, most_threads))};
  if (choices.root().has("gpu")) machine.gpu = gpu_from_json(choices.root().key("gpu"));
  return machine;
}

// What the run was planned with; empty where it was started by a version that did not leave it.
plan::CostTable costs_of_run(const std::string& run_directory) {
  const std::string path = run_directory + "/costs.json";
  std::error_code error;
  if (!fs::exists(path, error)) return {};
  return plan::cost_table_from_json(parse_json(read_text_file(path), path, FileOwner::Run), path,
                                    FileOwner::Run);
}

// "<", ">" and "&" stand only inside of strings, where JSON has another way to write them; with it
// no text can end the element that holds the data.
std::string json_for_html(const ordered_json& data) {
  const std::string plain = json_text(data);
  std::string escaped;
  for (const char c : plain) {
    if (c == '<' || c == '>' || c == '&') {
      escaped += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      escaped += c;
    }
  }
  return escaped;
}

void replace(std::string& text, std::string_view mark, std::string_view content) {
  const std::size_t place = text.find(mark);
  expect(place != std::string::npos, "a mark is missing in the report's page");
  text.replace(place, mark.size(), content);
}

}  // namespace

ordered_json report_data(const std::string& run_directory, const ReportOptions& options) {
  const RunConfig config = run_directory_config(run_directory);
  const std::vector<StepMetrics> rows = read_metrics(run_directory);
  const RunMachine machine = machine_of_run(run_directory);
  const int threads = machine.threads;
  const int ranks = static_cast<int>(config.grid.data * config.grid.pipeline * config.grid.tensor);
  const std::vector<RankProgram> programs = read_rank_programs(run_directory, ranks);

  ordered_json keys = ordered_json::object();
  for (const auto& key : config_keys()) keys[key.name] = key.get(config);
  ordered_json data = {
      {"format", "garonne.report"},    {"version", 1},
      {"garonne", version_string()},   {"run", fs::path(run_directory).lexically_normal().string()},
      {"config", std::move(keys)},     {"summary", summary_json(config, rows, threads)},
      {"metrics", metrics_json(rows)}, {"time", time_json(rows)},
      {"utilisation", nullptr}};

  if (machine.gpu) data["summary"]["gpu"] = to_text(*machine.gpu);
  std::map<std::string, std::string> kinds;
  data["sizes"] = nullptr;
  data["parameters"] = nullptr;
  data["costs"] = nullptr;
  data["curve"] = nullptr;
  data["budgets"] = options.budgets;
  data["sweep"] = nullptr;
  const WorkloadKind& kind = workload_kind(config.model.kind);
  if (const auto facts = kind.facts_of_run(with_found_data(config, run_directory), run_directory)) {
    RunConfig planned = config;
    // A plan need not leave room for a validation that never ran.
    if (data["summary"]["last_validation_loss"].is_null()) planned.evaluation.batches = 0;
    Setup setup = make_setup(planned, *facts, threads);
    const plan::CostTable costs = costs_of_run(run_directory);
    data["costs"] = apply_costs(costs, setup) ? "measured" : "declared";
    data["sizes"] = describe_sizes(setup);
    data["parameters"] = whole_parameter_elements(setup.model);
    for (const auto& node : setup.model.graph.nodes) kinds[node.name] = node.kind;
    const double peak_flops = options.cluster ? device_flops_of(*options.cluster, setup) : 0;
    const Setup undivided = undivided_setup(planned, *facts, threads);
    data["utilisation"] = utilisation_json(
        undivided.model.graph, model_work(undivided, config.train.global_batch, peak_flops),
        static_cast<int>(config.grid.tensor), ranks, programs,
        data["summary"]["measured_seconds"].get<double>());
    if (options.budgets > 0) {
      data["curve"] = to_json(budget_curve(setup, options.budgets, [&](int done, int all) {
        options.progress("budgets", done, all);
      }));
    }
    // Where the run never wrote what it had, "auto" is not known afterwards.
    const std::int64_t budget =
        programs.empty() ? planned.memory.budget : programs[0].program.budget_bytes();
    if (budget != RunConfig::automatic_budget) {
      data["sweep"] = to_json(
          memory_sweep(planned, {true, kind.tokens_per_sample(config) > 0}, *facts, threads, costs,
                       budget, [&](int done, int all) { options.progress("sizes", done, all); }));
    }
  }
  data["memory"] = programs.empty() ? ordered_json(nullptr) : memory_json(programs[0]);
  data.update(programs_json(programs, kinds));
  data["skill"] = skill_of_run(run_directory);
  return data;
}

std::string report_page(const ordered_json& data) {
  std::string scripts;
  for (const char* name : {"drawing.js", "summary.js", "live_bytes.js", "schedule.js", "curve.js",
                           "nodes.js", "sizes.js", "training.js", "coastlines.js", "maps.js",
                           "skill.js", "ensembles.js", "main.js"})
    scripts += report_text(name);
  std::string page(report_text("page.html"));
  replace(page, "{{style}}", report_text("style.css"));
  replace(page, "{{scripts}}", scripts);
  // Last, so that nothing in it is taken for a mark.
  replace(page, "{{data}}", json_for_html(data));
  return page;
}

}  // namespace garonne::train
