#include <fmt/format.h>

#include <algorithm>

#include "base/bytes.hpp"
#include "train/plans/grid_search.hpp"
#include "train/plans/step_parts.hpp"
#include "train/setup/pipeline_schedule.hpp"
#include "train/setup/planning.hpp"

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
    text += fmt::format("left out: {}: {}\n", plan::to_string(unplanned[k].candidate),
                        unplanned[k].reason);
  }
  if (lines < unplanned.size())
    text += fmt::format("left out: {} more, for such reasons\n", unplanned.size() - lines);
  return text;
}

// Of the schedules among the best.
std::string overlap_notes(const plan::GridSearch& search) {
  std::string text;
  for (const plan::ScheduleTraits& traits : plan::schedule_traits()) {
    const bool is_shown =
        std::any_of(search.best.begin(), search.best.end(), [&](const auto& grid) {
          return grid.candidate.shape.pipeline > 1 && grid.candidate.schedule == traits.name;
        });
    if (is_shown && traits.overlaps) text += overlap_note(traits.name);
  }
  return text;
}

// Rates with which another grid is best; one line where there are none.
std::string other_rates_lines(const GridSearchWish& wish, const GridSearchAnswer& answer) {
  if (answer.other_rates.empty()) return "";
  const double percent = 100 * wish.tolerance;
  std::string text;
  for (const OtherRate& other : answer.other_rates) {
    if (other.best == 0) continue;
    text += fmt::format("with {} {:.0f} % {} grid {} is best, and the first takes {:.1f} % more\n",
                        other.rate, percent, other.factor < 1 ? "slower" : "faster", other.best + 1,
                        100 * other.regret);
  }
  return text.empty() ? fmt::format(
                            "the first stays best where one rate is {:.0f} % slower or "
                            "faster\n",
                            percent)
                      : text;
}

std::string traffic(double bytes) {
  return bytes == 0 ? "-" : format_bytes(static_cast<std::int64_t>(bytes));
}

}  // namespace

std::string format_grid_search(const GridSearchWish& wish, const GridSearchAnswer& answer) {
  const plan::GridSearch& search = answer.search;
  std::string text =
      fmt::format("{} ranks on {}: nodes of {}, {} a rank; global batch {}, {}\n", wish.ranks,
                  wish.cluster.name, wish.cluster.devices_per_node, format_bytes(wish.budget_bytes),
                  wish.config.train.global_batch, describe_numbers(wish.config));
  text += fmt::format(
      "{:>2}  {:>5} {:>4} {:>6}  {:<13} {:>4} {:>5} {:>5} {:>11} {:>7} {:>7}  {:<23} {:>10} {:>10} "
      " {}\n",
      "", "data", "pipe", "tensor", "schedule", "ZeRO", "batch", "times", "ms a step", "bubble",
      "bound", "peak by stage", "inside", "between", "most time goes to");
  for (std::size_t k = 0; k < search.best.size(); ++k) {
    const auto& [candidate, bounds, estimate, outcome] = search.best[k];
    const auto [least, most] =
        std::minmax_element(outcome.peak_bytes.begin(), outcome.peak_bytes.end());
    const std::string peaks =
        *least == *most ? format_bytes(*most)
                        : fmt::format("{} .. {}", format_bytes(*least), format_bytes(*most));
    text += fmt::format(
        "{:>2}  {:>5} {:>4} {:>6}  {:<13} {:>4} {:>5} {:>5} {:>11.3f} {:>5.1f} % {:>+5.0f} %  "
        "{:<23} {:>10} "
        "{:>10}  {}\n",
        k + 1, candidate.shape.data, candidate.shape.pipeline,
        fmt::format("{}{}", candidate.shape.tensor, candidate.sequence_parallel ? " sp" : ""),
        schedule_name(candidate), candidate.zero, candidate.micro_batch, candidate.micro_batches,
        1e3 * outcome.seconds, 100 * outcome.bubble_seconds / outcome.seconds,
        100 * (outcome.seconds / bounds.seconds - 1), peaks, traffic(outcome.inside_traffic),
        traffic(outcome.between_traffic), binding(outcome.parts).first);
  }
  text += fmt::format(
      "{} grids: {} cannot be cut like that, {} need more memory, {} were planned by node{}\n",
      search.candidates, search.refused, search.too_large, search.planned,
      search.proven ? "; no other can be faster" : "; others were left by estimates");
  text += other_rates_lines(wish, answer);
  text += overlap_notes(search);
  text += unplanned_lines(search.unplanned);
  text += fmt::format(
      "seconds: {}; blocks run again where memory asks for it. Plan the best with "
      "the keys below for a faster choice node by node.\n",
      answer.measured ? "measured costs of this machine" : wish.cluster.source);
  text += keys_of(search.best.front().candidate);
  return text;
}

nlohmann::ordered_json keys_json(const GridSearchWish& wish, const plan::GridCandidate& candidate) {
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

nlohmann::ordered_json to_json(const GridSearchWish& wish, const GridSearchAnswer& answer) {
  const plan::GridSearch& search = answer.search;
  nlohmann::ordered_json grids = nlohmann::ordered_json::array();
  for (const auto& [candidate, bounds, estimate, outcome] : search.best) {
    nlohmann::ordered_json parts = nlohmann::ordered_json::object();
    for (const auto& [name, seconds] : outcome.parts) parts[name] = seconds;
    nlohmann::ordered_json grid = keys_json(wish, candidate);
    grid.update({{"seconds", outcome.seconds},
                 {"bubble_seconds", outcome.bubble_seconds},
                 {"seconds_at_least", bounds.seconds},
                 {"seconds_estimated", estimate.seconds},
                 {"peak_bytes", outcome.peak_bytes},
                 {"plans", outcome.plans},
                 {"inside_node_bytes", outcome.inside_traffic},
                 {"between_nodes_bytes", outcome.between_traffic},
                 {"binds", binding(outcome.parts).first},
                 {"parts", std::move(parts)}});
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
                                 {"unplanned", std::move(unplanned)},
                                 {"proven", search.proven},
                                 {"grids", std::move(grids)}};
  if (wish.tolerance > 0) json["other_rates"] = std::move(other_rates);
  return json;
}

}  // namespace garonne::train
