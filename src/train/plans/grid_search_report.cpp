#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "base/bytes.hpp"
#include "base/counted.hpp"
#include "base/wrapped.hpp"
#include "plan/step/passes_in_turn.hpp"
#include "train/plans/cluster_costs.hpp"
#include "train/plans/grid_search.hpp"
#include "train/plans/step_parts.hpp"
#include "train/setup/cluster.hpp"
#include "train/setup/lower_tiers.hpp"
#include "train/setup/planning.hpp"
#include "train/setup/stage_passes.hpp"

namespace garonne::train {
namespace {

std::string schedule_name(const plan::GridCandidate& candidate) {
  if (candidate.shape.pipeline == 1) return "-";
  return candidate.schedule == "interleaved" ? fmt::format("interleaved/{}", candidate.chunks)
                                             : candidate.schedule;
}

// The rest is in the JSON.
constexpr std::size_t most_unplanned_lines = 3;

std::string unplanned_lines(const std::vector<plan::UnplannedGrid>& unplanned) {
  std::string text;
  const std::size_t lines = std::min(unplanned.size(), most_unplanned_lines);
  for (std::size_t k = 0; k < lines; ++k) {
    text += below_table(fmt::format("left out: {}: {}", plan::to_string(unplanned[k].candidate),
                                    unplanned[k].reason));
  }
  if (lines < unplanned.size())
    text += fmt::format("left out: {} more, for such reasons\n", unplanned.size() - lines);
  return text;
}

std::string rows_text(const std::vector<std::size_t>& rows) {
  return fmt::format("{} {}", rows.size() == 1 ? "row" : "rows", fmt::join(rows, ", "));
}

// Of the schedules among the best, with the rows of the table.
std::string overlap_notes(const GridSearchRequest& wish, const plan::GridSearch& search) {
  std::string text;
  for (const plan::ScheduleTraits& traits : plan::schedule_traits()) {
    bool overlap = false;
    std::map<std::string, std::vector<std::size_t>> in_turn;  // rows by reason
    for (std::size_t row = 0; row < search.best.size(); ++row) {
      const plan::GridCandidate& candidate = search.best[row].candidate;
      if (!traits.overlaps || candidate.shape.pipeline == 1 || candidate.schedule != traits.name)
        continue;
      if (search.best[row].outcome.passes_overlap) {
        overlap = true;
        continue;
      }
      const plan::PassesInTurn why =
          plan::why_in_turn(candidate.shape.tensor, candidate.shape.data, candidate.zero,
                            !wish.cluster.software.overlaps_collectives);
      in_turn[reason_in_turn(why)].push_back(row + 1);
    }
    if (!overlap && in_turn.empty()) continue;
    std::string note =
        overlap ? passes_that_overlap(traits.name)
                : fmt::format("passes that {} lets overlap run one after the other", traits.name);
    for (const auto& [reason, rows] : in_turn) {
      note += fmt::format("; {}in {}: {}", overlap ? "not " : "", rows_text(rows), reason);
    }
    text += below_table("note: " + note);
  }
  return text;
}

// Rates with which another grid is best; one line where there are none.
std::string other_rates_lines(const GridSearchRequest& wish, const GridSearchAnswer& answer) {
  if (answer.other_rates.empty()) return "";
  const double tolerance = 100 * wish.tolerance;
  std::string text;
  for (const OtherRate& other : answer.other_rates) {
    if (other.best == 0) continue;
    text += fmt::format("with {} {:.0f} % {} grid {} is best, and the first takes {:.1f} % more\n",
                        other.rate, tolerance, other.factor < 1 ? "slower" : "faster",
                        other.best + 1, 100 * other.regret);
  }
  return text.empty() ? fmt::format(
                            "the first stays best where one rate is {:.0f} % slower or "
                            "faster\n",
                            tolerance)
                      : text;
}

std::string traffic(double bytes) {
  return bytes == 0 ? "-" : format_bytes(static_cast<std::int64_t>(bytes));
}

std::string percent(double share) {
  return fmt::format("{:.1f} %", 100 * share);
}

std::string this_machine_lines(const GridSearchRequest& wish) {
  return below_table(fmt::format(
      "this machine has {}: each rank is planned with {} of a device for itself, all alike; "
      "--cluster FILE plans for others",
      counted(Cores::of_this_process().of_node, "core"), counted(wish.threads, "thread")));
}

// As make_setup() understands it.
std::string plan_of(const RunConfig& config) {
  return config.memory.plan == "auto" ? widest_plan(config) : config.memory.plan;
}

// What was planned with the tiers below the device.
std::string closer_line(const plan::GridSearch& search) {
  std::vector<std::size_t> rows;
  for (std::size_t row = 0; row < search.best.size(); ++row)
    if (search.best[row].closely) rows.push_back(row + 1);
  std::string text = fmt::format(
      "{} planned node by node, with the host or the disk: the fastest, and what may be faster and "
      "fits only so; ",
      counted(search.closely_planned, "grid"));
  if (rows.empty()) return text + "none is faster than with whole blocks that run again";
  text += rows_text(rows) + (rows.size() == 1 ? " is" : " are") + " of these";
  if (rows.size() == search.best.size()) return text;
  return text +
         "; the others run whole blocks again where memory asks for it, and leave nothing "
         "there";
}

// By what the grids were planned.
std::string planning_line(const RunConfig& config, const GridSearchAnswer& answer) {
  const std::string plan = plan_of(config);
  if (answer.by_node) {
    return "no grid fits where whole blocks run again: this one needs least, and is planned node "
           "by node, as `garonne plan` with the keys below does; others may fit so, too, and be "
           "faster";
  }
  if (plan != "auto") {
    return fmt::format(
        "each grid is planned by memory.plan = {}, as `garonne plan` with the keys below does",
        plan);
  }
  if (answer.search.closely_planned > 0) return closer_line(answer.search);
  return "these seconds run whole blocks again where memory asks for it; `garonne plan` with the "
         "keys below chooses single nodes and may be faster";
}

// What the grids are, and how fast.
std::string speed_table(const GridSearchRequest& wish, const GridSearchAnswer& answer) {
  std::string text = fmt::format(
      "{:>2}  {:>5} {:>4} {:>6}  {:<13} {:>4} {:>13} {:>11} {:>10} {:>8} {:>7} {:>7} {:>11}\n", "",
      "data", "pipe", "tensor", "schedule", "ZeRO", "micro-batches", "ms a step",
      rate_name(answer.work), "TFLOP/s", "used", "bound", "peak");
  for (std::size_t k = 0; k < answer.search.best.size(); ++k) {
    const auto& [candidate, bounds, estimate, outcome, closely] = answer.search.best[k];
    const StepRates rates = rates_of(answer.work, wish.ranks, outcome.seconds);
    text += fmt::format(
        "{:>2}  {:>5} {:>4} {:>6}  {:<13} {:>4} {:>13} {:>11.3f} {:>10} {:>8} {:>7} {:>7} {:>11}\n",
        k + 1, candidate.shape.data, candidate.shape.pipeline,
        fmt::format("{}{}", candidate.shape.tensor, candidate.sequence_parallel ? " sp" : ""),
        schedule_name(candidate), candidate.zero,
        fmt::format("{} of {}", candidate.micro_batches, candidate.micro_batch),
        1e3 * outcome.seconds, rate_text(rates.items_per_second),
        fmt::format("{:.3g}", rates.operations_per_second / 1e12), percent(rates.utilisation),
        fmt::format("{:+.0f} %", 100 * (outcome.seconds / bounds.seconds - 1)),
        format_bytes(*std::max_element(outcome.peak_bytes.begin(), outcome.peak_bytes.end())));
  }
  text += below_table(fmt::format(
      "micro-batches: of a rank in a step, of so many samples each. TFLOP/s: a device's, of the "
      "model, forward and backward once; used: share of its {:.3g} TFLOP/s. bound: how far above "
      "the "
      "least that any plan of the grid takes. peak: of the stage that holds most.",
      answer.work.device_flops / 1e12));
  return text;
}

// What their seconds go to, and what their ranks send.
std::string time_table(const std::vector<plan::RankedGrid>& best) {
  std::string text = fmt::format("{:>2}  {:>8} {:>10} {:>14} {:>8} {:>8}  {:>12} {:>12}  {}\n", "",
                                 "compute", "run again", "communication", "bubble", "other",
                                 "sent inside", "between", "most time goes to");
  for (std::size_t k = 0; k < best.size(); ++k) {
    const auto& [candidate, bounds, estimate, outcome, closely] = best[k];
    const StepShares shares = shares_of(outcome.parts);
    text +=
        fmt::format("{:>2}  {:>8} {:>10} {:>14} {:>8} {:>8}  {:>12} {:>12}  {}\n", k + 1,
                    percent(shares.compute), percent(shares.again), percent(shares.communication),
                    candidate.shape.pipeline == 1 ? "-" : percent(shares.bubble),
                    percent(shares.other), traffic(outcome.inside_traffic),
                    traffic(outcome.between_traffic), binding(outcome.parts).first);
  }
  text += below_table(
      "of the step of the busiest stage. communication: what nothing hides. bubble: waiting for "
      "other stages. other: launches and copies. sent: by a rank in a step, inside its node and "
      "between nodes.");
  return text;
}

}  // namespace

std::string format_grid_search(const GridSearchRequest& wish, const GridSearchAnswer& answer) {
  const plan::GridSearch& search = answer.search;
  std::string text = below_table(fmt::format(
      "{} on {}: nodes of {}, {} a rank; global batch {}, {}", counted(wish.ranks, "rank"),
      wish.cluster.name, wish.cluster.devices_per_node, format_bytes(wish.budget_bytes),
      wish.config.train.global_batch, describe_numbers(wish.config)));
  if (!wish.pinned.empty())
    text += below_table(fmt::format("given, not searched for: {}", describe_pins(wish)));
  if (wish.on_this_machine) text += this_machine_lines(wish);
  text += speed_table(wish, answer);
  text += time_table(search.best);
  text += below_table(fmt::format(
      "{}: {} cannot be cut like that, {} need more memory, {} were planned by node{}",
      counted(search.candidates, "grid"), search.refused, search.too_large, search.planned,
      answer.by_node  ? ""
      : search.proven ? "; no other can be faster"
                      : "; others were left by estimates"));
  text += other_rates_lines(wish, answer);
  text += overlap_notes(wish, search);
  text += unplanned_lines(search.unplanned);
  text += below_table(fmt::format(
      "seconds: {}{}", answer.measured ? "measured costs of this machine" : source_of(wish.cluster),
      wish.on_this_machine ? "" : describe_efficiency(wish.cluster)));
  text += below_table(planning_line(wish.config, answer));
  text += keys_of(search.best.front().candidate);
  return text;
}

nlohmann::ordered_json keys_json(const GridSearchRequest& wish,
                                 const plan::GridCandidate& candidate) {
  const RunConfig config = with_candidate(wish.config, candidate);
  return {{"data", config.grid.data},
          {"pipeline", config.grid.pipeline},
          {"tensor", config.grid.tensor},
          {"sequence_parallel", config.grid.sequence_parallel},
          {"schedule", config.grid.schedule},
          {"chunks", config.grid.chunks},
          {"zero", config.grid.zero},
          {"bucket", config.grid.bucket},
          {"micro_batch", config.train.micro_batch},
          {"micro_batches", candidate.micro_batches}};
}

nlohmann::ordered_json to_json(const GridSearchRequest& wish, const GridSearchAnswer& answer) {
  const plan::GridSearch& search = answer.search;
  nlohmann::ordered_json grids = nlohmann::ordered_json::array();
  for (const auto& [candidate, bounds, estimate, outcome, closely] : search.best) {
    nlohmann::ordered_json parts = nlohmann::ordered_json::object();
    for (const auto& [name, seconds] : outcome.parts) parts[name] = seconds;
    nlohmann::ordered_json grid = keys_json(wish, candidate);
    grid.update(
        {{"seconds", outcome.seconds},
         {"bubble_seconds", outcome.bubble_seconds},
         {"communication_seconds", shares_of(outcome.parts).communication * outcome.seconds},
         {"seconds_at_least", bounds.seconds},
         {"seconds_estimated", estimate.seconds},
         {"peak_bytes", outcome.peak_bytes},
         {"plans", outcome.plans},
         {"closely", closely},
         {"inside_node_bytes", outcome.inside_traffic},
         {"between_nodes_bytes", outcome.between_traffic},
         {"binds", binding(outcome.parts).first},
         {"parts", std::move(parts)}});
    add_rates(answer.work, wish.ranks, outcome.seconds, grid);
    grids.push_back(std::move(grid));
  }
  nlohmann::ordered_json unplanned = nlohmann::ordered_json::array();
  for (const auto& [candidate, reason] : search.unplanned)
    unplanned.push_back({{"grid", plan::to_string(candidate)}, {"reason", reason}});
  nlohmann::ordered_json other_rates = nlohmann::ordered_json::array();
  for (const OtherRate& other : answer.other_rates) {
    other_rates.push_back({{"rate", other.rate},
                           {"factor", other.factor},
                           {"best", other.best},
                           {"regret", other.regret}});
  }
  nlohmann::ordered_json json = {{"format", "garonne.grids"},
                                 {"version", 1},
                                 {"ranks", wish.ranks},
                                 {"cluster", wish.cluster.name},
                                 {"devices_per_node", wish.cluster.devices_per_node},
                                 {"budget_bytes", wish.budget_bytes},
                                 {"costs", answer.measured ? "measured" : "nominal"},
                                 {"candidates", search.candidates},
                                 {"refused", search.refused},
                                 {"too_large", search.too_large},
                                 {"planned", search.planned},
                                 {"closely_planned", search.closely_planned},
                                 {"unplanned", std::move(unplanned)},
                                 {"proven", search.proven},
                                 {"plan", plan_of(wish.config)},
                                 {"pinned", wish.pinned},
                                 {"grids", std::move(grids)}};
  if (wish.tolerance > 0) json["other_rates"] = std::move(other_rates);
  return json;
}

}  // namespace garonne::train
