#include "train/plans/plan_answer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/bytes.hpp"
#include "base/counted.hpp"
#include "train/plans/cluster_costs.hpp"
#include "train/plans/explain.hpp"
#include "train/plans/explain_tiers.hpp"
#include "train/plans/saving_plan.hpp"
#include "train/plans/tier_rows.hpp"
#include "train/setup/available_memory.hpp"
#include "train/setup/lower_tiers.hpp"
#include "train/setup/stage_passes.hpp"

namespace garonne::train {
namespace {

using nlohmann::ordered_json;

bool knows_seconds(const PlanAnswer& answer) {
  return answer.costs != CostSource::Declared;
}

ordered_json seconds_json(const PlanAnswer& answer, double seconds) {
  return knows_seconds(answer) ? ordered_json(seconds) : ordered_json(nullptr);
}

std::string name_of(CostSource costs) {
  switch (costs) {
    case CostSource::Measured:
      return "measured";
    case CostSource::Cluster:
      return "nominal";
    case CostSource::Declared:
      break;
  }
  return "declared";
}

ordered_json memory_json(const MemoryTable& table, const std::vector<TierRow>& below) {
  ordered_json memory = {{"parameters", table.parameters}, {"gradients", table.gradients},
                         {"optimizer", table.optimizer},   {"activations", table.activations},
                         {"transients", table.transients}, {"communication", table.communication},
                         {"gathered", table.gathered},     {"peak", table.peak}};
  if (table.libraries > 0) memory["libraries"] = table.libraries;
  if (table.saved_copy > 0) memory["saved_copy"] = table.saved_copy;
  for (const TierRow& row : below) {
    const std::string name(to_string(row.tier));
    if (row.peak_bytes > 0) memory[name] = row.peak_bytes;
    if (row.saved_copy_bytes > 0) memory[name + "_saved_copy"] = row.saved_copy_bytes;
  }
  return memory;
}

// Of the largest stage.
MemoryTable memory_of(const PlanAnswer& answer) {
  const Choice& choice = answer.plan.stages[answer.plan.largest].choice;
  return memory_table(choice.prediction, answer.budget_bytes,
                      saving_of(answer.plan, answer.budget_bytes).bytes_in_budget());
}

// The same below the device.
std::vector<TierRow> tiers_of(const PlanAnswer& answer) {
  const Choice& choice = answer.plan.stages[answer.plan.largest].choice;
  return tier_rows(choice.program, choice.prediction,
                   saving_of(answer.plan, answer.budget_bytes).bytes_on_host());
}

ordered_json lanes_json(const plan::Program& program) {
  ordered_json lanes = ordered_json::object();
  for (const auto& [lane, planned] : planned_lanes(program)) {
    lanes[std::string(to_string(lane))] = {{"copies", planned.copies},
                                           {"bytes", planned.bytes},
                                           {"busy_seconds", planned.busy_seconds},
                                           {"waited_seconds", planned.waited_seconds}};
  }
  return lanes;
}

ordered_json saving_json(const Saving& saving) {
  return {{"asynchronous", saving.asynchronous},
          {"copy_bytes", saving.copy_bytes},
          {"missing_bytes", saving.missing_bytes}};
}

ordered_json stages_json(const GridPlan& plan) {
  ordered_json stages = ordered_json::array();
  for (const PlannedStage& stage : plan.stages) {
    stages.push_back({{"plan", stage.choice.program.name},
                      {"parameters", whole_parameter_elements(stage.setup.model)},
                      {"peak_bytes", stage.prediction.peak_bytes},
                      {"minimum_budget_bytes", stage.choice.minimum_budget_bytes},
                      {"seconds", stage.prediction.seconds}});
  }
  return stages;
}

std::string format_stages(const PlanAnswer& answer) {
  const GridPlan& plan = answer.plan;
  if (plan.stages.size() == 1) return "";
  std::vector<std::string> names;
  for (const PlannedStage& stage : plan.stages) names.push_back(stage.choice.program.name);
  const int width = name_width(names);
  std::string text;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const PlannedStage& stage = plan.stages[s];
    const auto& nodes = stage.setup.model.graph.nodes;
    text += fmt::format("stage {:<3} {:<{}} peak {:>11}  {:>9.2f} M parameters {} to {}\n", s,
                        stage.choice.program.name, width, format_bytes(stage.prediction.peak_bytes),
                        static_cast<double>(whole_parameter_elements(stage.setup.model)) / 1e6,
                        nodes.front().name,
                        nodes.back().hands_over ? nodes[nodes.size() - 2].name : nodes.back().name);
  }
  text += fmt::format("of these stage {} is shown below\n", plan.largest);
  if (knows_seconds(answer)) {
    const StepShares shares = shares_of(plan.parts.parts);
    const double milliseconds = 1e3 * plan.seconds;
    text += fmt::format(
        "of {:.1f} ms the busiest stage computes {:.1f}, waits {:.1f} for links and {:.1f} in the "
        "bubble\n",
        milliseconds, milliseconds * (shares.compute + shares.again),
        milliseconds * shares.communication, milliseconds * shares.bubble);
  }
  return text;
}

std::string format_candidates(const PlanAnswer& answer, const Choice& choice) {
  std::vector<std::string> names;
  for (const auto& candidate : choice.candidates) names.push_back(candidate.name);
  const int width = name_width(names);
  std::string text;
  if (answer.plan.stages.size() > 1) {
    text += fmt::format("plans of stage {} alone{}:\n", answer.plan.largest,
                        knows_seconds(answer) ? ", as if it waited for no other" : "");
  }
  for (const auto& candidate : choice.candidates) {
    text += fmt::format(
        "plan {:<{}} peak {:>14} B ({}){}{}\n", candidate.name, width, candidate.peak_bytes,
        format_bytes(candidate.peak_bytes),
        knows_seconds(answer) ? fmt::format("  {:.1f} ms a step", 1e3 * candidate.seconds) : "",
        candidate.name == choice.program.name ? "  <- chosen" : "");
  }
  return text;
}

// A step takes as long as its busiest stage at least. 0 where nobody knows.
double least_seconds_of(const GridPlan& plan) {
  double least = 0;
  for (const PlannedStage& stage : plan.stages) least = std::max(least, stage.choice.least_seconds);
  return least;
}

// Of devices that a host gives their kernels.
std::string format_launches(const GridPlan& plan) {
  if (plan.issue_seconds <= 0) return "";
  const double share = 100 * plan.launch_seconds / plan.seconds;
  const std::string host =
      fmt::format("the host takes {:.1f} ms to issue it", 1e3 * plan.issue_seconds);
  // Below that the start of the step is all.
  constexpr double least_percent = 1;
  if (share < least_percent) return fmt::format("launches: {}, hidden\n", host);
  return fmt::format("bound by launches, {:.0f} % of the step: {}\n", share, host);
}

std::string format_seconds(const PlanAnswer& answer) {
  const double milliseconds = 1e3 * answer.plan.seconds;
  const std::string rates =
      describe_rates(answer.work, answer.whole.grid.ranks(), answer.plan.seconds);
  if (answer.costs == CostSource::Measured) {
    return fmt::format("a step: {:.1f} ms (measured costs of this machine, {} a rank)\n",
                       milliseconds, counted(answer.threads, "thread")) +
           rates;
  }
  if (answer.costs == CostSource::Cluster) {
    return fmt::format("a step: {:.1f} ms (by the figures of {}{})\n", milliseconds,
                       answer.cluster->name, describe_efficiency(*answer.cluster)) +
           rates + format_launches(answer.plan);
  }
  std::string text =
      "a step: not known, no profile of this model is cached here (`garonne profile` makes one)\n";
  if (answer.plan.stages.size() > 1)
    text += "with a profile the stages may be cut elsewhere; the smallest budget stays\n";
  return text;
}

}  // namespace

ordered_json to_json(const PlanAnswer& answer) {
  const Setup& whole = answer.whole;
  const GridPlan& plan = answer.plan;
  const Choice& choice = plan.stages[plan.largest].choice;
  ordered_json candidates = ordered_json::array();
  for (const auto& candidate : choice.candidates) {
    ordered_json row = {{"plan", candidate.name}, {"peak_bytes", candidate.peak_bytes}};
    row["seconds"] = seconds_json(answer, candidate.seconds);
    candidates.push_back(std::move(row));
  }
  ordered_json json = {{"format", "garonne.plan"},
                       {"version", 1},
                       {"ranks", whole.grid.ranks()},
                       {"plan", choice.program.name},
                       {"budget_bytes", answer.budget_bytes},
                       {"peak_bytes", choice.prediction.peak_bytes},
                       {"evaluation_peak_bytes", choice.evaluation.peak_bytes},
                       {"minimum_budget_bytes", plan.minimum_budget_bytes},
                       {"parameters", whole_parameter_elements(whole.model)},
                       {"micro_batches", whole.step.micro_batches},
                       {"costs", name_of(answer.costs)},
                       {"memory", memory_json(memory_of(answer), tiers_of(answer))},
                       {"saving", saving_json(saving_of(plan, answer.budget_bytes))},
                       {"candidates", std::move(candidates)}};
  for (std::size_t k = 0; k < whole.model.graph.parameters.size(); ++k) {
    const plan::ParameterSpec& parameter = whole.model.graph.parameters[k];
    json["weights"].push_back({{"name", parameter.name},
                               {"shape", whole.model.boxes[k].global},
                               {"decays", parameter.decays}});
    if (parameter.weight_decay) json["weights"].back()["weight_decay"] = *parameter.weight_decay;
  }
  if (const double least = least_seconds_of(plan); least > 0 && knows_seconds(answer))
    json["least_seconds"] = least;
  if (plan.minimum_on_device_bytes > 0) {
    const CopyTraffic traffic = copy_traffic(choice.program);
    json["minimum_on_device_bytes"] = plan.minimum_on_device_bytes;
    if (!plan.minimum_bytes_by_way.empty()) {
      json["minimum_budget_bytes_by_way"] = plan.minimum_bytes_by_way;
      json["minimum_budget_bytes_without_way"] = plan.minimum_bytes_without_way;
    }
    json["copied_out_bytes"] = traffic.out_bytes;
    json["copied_in_bytes"] = traffic.in_bytes;
    if (knows_seconds(answer)) json["lanes"] = lanes_json(choice.program);
  }
  json["seconds"] = seconds_json(answer, plan.seconds);
  if (knows_seconds(answer)) {
    json["bubble_seconds"] = plan.parts.bubble_seconds;
    json["communication_seconds"] = shares_of(plan.parts.parts).communication * plan.seconds;
    add_rates(answer.work, whole.grid.ranks(), plan.seconds, json);
    json["binds"] = binding(plan.parts.parts).first;
    for (const auto& [name, seconds] : plan.parts.parts) json["parts"][name] = seconds;
  }
  if (plan.issue_seconds > 0) {
    json["issue_seconds"] = plan.issue_seconds;
    json["launch_seconds"] = plan.launch_seconds;
  }
  if (plan.stages.size() > 1) json["stages"] = stages_json(plan);
  return json;
}

std::string format_plan(const PlanAnswer& answer) {
  const Setup& whole = answer.whole;
  const GridPlan& plan = answer.plan;
  const Setup& shown = plan.stages[plan.largest].setup;
  const Choice& choice = plan.stages[plan.largest].choice;
  std::string text = fmt::format("{}: {} · {} a rank · {:.2f} M parameters, {}\n",
                                 counted(whole.grid.ranks(), "rank"), to_string(whole.grid.shape()),
                                 counted(whole.step.micro_batches, "micro-batch"),
                                 static_cast<double>(whole_parameter_elements(whole.model)) / 1e6,
                                 describe_numbers(whole.config));
  std::vector<StagePasses> passes;
  for (const PlannedStage& stage : plan.stages)
    passes.push_back(passes_of(stage.setup, stage.choice.program));
  text += passes_note(whole, passes, false);
  if (answer.cluster == nullptr && whole.config.memory.budget == RunConfig::automatic_budget)
    text += describe_automatic_budget(whole.grid.ranks(), answer.budget_bytes);
  text += format_stages(answer);
  text += format_candidates(answer, choice);
  text += format_memory_table(memory_of(answer), answer.budget_bytes);
  text += format_tier_rows(tiers_of(answer));
  text += describe_saving(saving_of(plan, answer.budget_bytes));
  text += format_copy_traffic(choice.program, knows_seconds(answer) ? plan.seconds : 0);
  const int peak = choice.prediction.peak_instruction;
  text += fmt::format(
      "at the peak: {}\n",
      peak < 0 ? std::string("start of the step")
               : plan::describe(choice.program.instructions[static_cast<std::size_t>(peak)]));
  if (plan.cut_as_declared) text += cut_as_declared_note;
  if (answer.explains)
    text += explain(shown, choice, answer.budget_bytes, answer.costs == CostSource::Measured);
  text += fmt::format("smallest budget: {} B ({})\n", plan.minimum_budget_bytes,
                      format_bytes(plan.minimum_budget_bytes));
  if (plan.minimum_on_device_bytes > 0) {
    for (const auto& [way, bytes] : plan.minimum_bytes_by_way)
      text += fmt::format("with {} alone: {} B ({})\n", way, bytes, format_bytes(bytes));
    for (const auto& [way, bytes] : plan.minimum_bytes_without_way)
      text += fmt::format("without {}: {} B ({})\n", way, bytes, format_bytes(bytes));
    text += fmt::format("without {}: {} B ({})\n", name_of_tiers(whole),
                        plan.minimum_on_device_bytes, format_bytes(plan.minimum_on_device_bytes));
  }
  text += describe_lower_tiers(whole);
  if (const double least = least_seconds_of(plan); least > 0 && knows_seconds(answer)) {
    text += fmt::format(
        "bound: no plan of this budget and {} takes less than {:.1f} ms{}; this one is {:.1f} % "
        "above\n",
        name_of_tiers(whole).substr(4), 1e3 * least,
        whole.grid.ranks() > 1 ? ", waits for other ranks not counted" : "",
        100 * (plan.seconds / least - 1));
  }
  return text + format_seconds(answer);
}

}  // namespace garonne::train
