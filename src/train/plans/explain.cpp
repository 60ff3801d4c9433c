#include "train/plans/explain.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "plan/program/live_bytes.hpp"
#include "train/plans/explain_tiers.hpp"
#include "train/plans/smallest_budget.hpp"
#include "train/plans/tier_rows.hpp"
#include "train/setup/lower_tiers.hpp"

namespace garonne::train {
namespace {

constexpr std::size_t most_rows = 10;
constexpr int steps_of_curve = 8;

std::string live_at_peak(const plan::Program& program, const plan::Prediction& prediction) {
  std::vector<const plan::Buffer*> buffers;
  std::int64_t static_bytes = 0;
  for (const int id : plan::live_during(program, prediction.peak_instruction)) {
    const plan::Buffer& buffer = program.buffers[static_cast<std::size_t>(id)];
    if (buffer.tier != Tier::Device) continue;
    if (buffer.live_at_start && buffer.live_at_end) {
      static_bytes += buffer.bytes;
    } else {
      buffers.push_back(&buffer);
    }
  }
  std::string text = fmt::format(
      "what binds: {}\n",
      prediction.peak_instruction < 0
          ? std::string("the start of the step")
          : plan::describe(
                program.instructions[static_cast<std::size_t>(prediction.peak_instruction)]));
  text += buffer_row("parameters and optimizer states", "static", static_bytes);
  text += buffer_rows(std::move(buffers), most_rows);
  if (prediction.peak_transient_bytes > 0) {
    text +=
        buffer_row("scratch memory while it runs", "transient", prediction.peak_transient_bytes);
  }
  return text;
}

std::string run_again(const plan::ModelGraph& graph, const plan::Program& program) {
  std::map<std::string, std::pair<int, double>> kinds;
  double whole = 0;
  for (const auto& instruction : program.instructions) {
    whole += instruction.seconds;
    if (!instruction.recompute) continue;
    auto& [count, seconds] =
        kinds[graph.nodes[static_cast<std::size_t>(instruction.node_index)].kind];
    // A pass in parts is run again once.
    count += plan::is_forward(instruction.operation);
    seconds += instruction.seconds;
  }
  if (kinds.empty()) return "nothing is run again\n";
  std::string text = "what is run again\n";
  for (const auto& [kind, entry] : kinds) {
    text += fmt::format("  {:<16}{:>5} times {:>10.2f} ms  {:4.1f} % of the step\n", kind,
                        entry.first, 1e3 * entry.second, 100 * entry.second / whole);
  }
  return text;
}

std::string other_budgets(const Setup& setup, const Choice& choice, std::int64_t budget_bytes) {
  const std::string wanted = widest_plan(setup.config);
  const Choice fastest = choose_program(setup, std::numeric_limits<std::int64_t>::max(), wanted,
                                        Effort::FirstThatFits);
  const StageFloor floor =
      floor_of_stage(setup, setup.step.pipeline.member, budget_bytes, wanted, Effort::All);
  const std::int64_t least = choice.minimum_budget_bytes;
  const std::int64_t most = std::max(fastest.prediction.peak_bytes + fastest.reserved_bytes, least);
  std::vector<std::string> plans;
  std::vector<std::array<std::string, 2>> rows;  // before the plan and after it
  double before_seconds = 0;
  std::int64_t before_bytes = 0;
  for (int k = 0; k <= steps_of_curve; ++k) {
    const std::int64_t budget = least + (most - least) / steps_of_curve * k +
                                (k == steps_of_curve ? (most - least) % steps_of_curve : 0);
    const auto planned = choose_in_cut(setup, floor, budget, wanted, Effort::FirstThatFits);
    // A stage that is cut by its seconds may need more.
    if (!planned) continue;
    const Choice& other = *planned;
    const double seconds = other.prediction.seconds;
    std::string gain;
    if (k > 0 && budget > before_bytes) {
      gain = fmt::format("{:.3f} ms", 1e3 * (before_seconds - seconds) * 1048576 /
                                          static_cast<double>(budget - before_bytes));
    }
    const bool here =
        budget_bytes >= budget &&
        (k == steps_of_curve || budget_bytes < budget + (most - least) / steps_of_curve);
    plans.push_back(other.program.name);
    rows.push_back(
        {format_bytes(budget), fmt::format("{:>9.1f} ms{:>8.1f} %  {:<14}{}", 1e3 * seconds,
                                           100 * (seconds / fastest.prediction.seconds - 1), gain,
                                           here ? "<- your budget is from here on" : "")});
    before_seconds = seconds;
    before_bytes = budget;
  }
  const int width = name_width(plans);
  std::string text = fmt::format("what other budgets cost\n  {:>12}  {:<{}}{:>12}{:>10}  {}\n",
                                 "budget", "plan", width, "step", "added", "each MiB more saves");
  for (std::size_t k = 0; k < rows.size(); ++k)
    text += fmt::format("  {:>12}  {:<{}}{}\n", rows[k][0], plans[k], width, rows[k][1]);
  return text;
}

}  // namespace

std::string explain(const Setup& setup, const Choice& choice, std::int64_t budget_bytes,
                    bool measured) {
  std::string text = live_at_peak(choice.program, choice.prediction) +
                     run_again(setup.model.graph, choice.program) +
                     explain_tiers(setup, choice, budget_bytes, widest_plan(setup.config)) +
                     other_budgets(setup, choice, budget_bytes);
  if (!measured) {
    text +=
        "seconds are estimates from declared operations and bytes; `garonne profile` measures\n";
  }
  return text;
}

}  // namespace garonne::train
