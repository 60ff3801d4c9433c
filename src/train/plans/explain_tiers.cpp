#include "train/plans/explain_tiers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/bytes.hpp"
#include "plan/program/live_bytes.hpp"
#include "plan/program/spans.hpp"
#include "train/plans/smallest_budget.hpp"
#include "train/plans/tier_rows.hpp"
#include "train/setup/lower_tiers.hpp"

namespace garonne::train {
namespace {

constexpr std::size_t most_rows_of_tier = 5;

std::string lanes_text(const plan::Program& program) {
  const std::map<Lane, PlannedLane> lanes = planned_lanes(program);
  if (lanes.empty()) return "nothing is moved\n";
  std::string text = fmt::format("copies of a step\n  {:<12}{:>8}{:>14}{:>14}{:>10}{:>14}\n",
                                 "lane", "copies", "bytes", "busy", "hidden", "waited for");
  for (const auto& [lane, planned] : lanes) {
    const double hidden = planned.busy_seconds > 0
                              ? std::max(0.0, 1 - planned.waited_seconds / planned.busy_seconds)
                              : 1;
    text += fmt::format("  {:<12}{:>8}{:>14}{:>11.1f} ms{:>8.0f} %{:>11.1f} ms\n", to_string(lane),
                        planned.copies, format_bytes(planned.bytes), 1e3 * planned.busy_seconds,
                        100 * hidden, 1e3 * planned.waited_seconds);
  }
  return text;
}

std::string held_text(const plan::Program& program, Tier tier, const plan::TierBytes& bytes) {
  if (bytes.peak_bytes == 0) return fmt::format("nothing is on the {}\n", to_string(tier));
  std::vector<const plan::Buffer*> buffers;
  for (const int id : plan::live_during(program, bytes.peak_instruction)) {
    const plan::Buffer& buffer = program.buffers[static_cast<std::size_t>(id)];
    if (buffer.tier == tier) buffers.push_back(&buffer);
  }
  return fmt::format("on the {} at its peak of {}\n", to_string(tier),
                     format_bytes(bytes.peak_bytes)) +
         buffer_rows(std::move(buffers), most_rows_of_tier);
}

std::string worth_text(const Setup& setup, const Choice& choice, std::int64_t budget_bytes,
                       const std::string& wanted) {
  std::string text = fmt::format("what each tier is worth\n  {:<10}{:>26}{:>30}\n", "without",
                                 "smallest budget", "a step within your budget");
  for (const auto& [tier, below] : setup.below.tiers) {
    const Setup without = without_tier(tier, setup);
    const std::int64_t all = std::numeric_limits<std::int64_t>::max();
    const StageFloor floor =
        floor_of_stage(without, setup.step.pipeline.member, all, wanted, Effort::All);
    const auto planned = floor.bytes <= budget_bytes ? choose_in_cut(without, floor, budget_bytes,
                                                                     wanted, Effort::FirstThatFits)
                                                     : std::nullopt;
    std::string step = "none";
    if (planned) {
      step = fmt::format("{:.1f} ms ({:+.1f} %)", 1e3 * planned->prediction.seconds,
                         100 * (planned->prediction.seconds / choice.prediction.seconds - 1));
    }
    text += fmt::format("  {:<10}{:>26}{:>30}\n", to_string(tier),
                        fmt::format("{} B ({})", floor.bytes, format_bytes(floor.bytes)), step);
  }
  return text;
}

}  // namespace

std::map<Lane, PlannedLane> planned_lanes(const plan::Program& program) {
  std::map<Lane, PlannedLane> lanes;
  const std::vector<plan::Span> spans = plan::spans_of(program);
  std::vector<plan::Measurement> planned(spans.size());
  for (std::size_t i = 0; i < spans.size(); ++i) {
    planned[i].seconds = spans[i].end - spans[i].begin;
    const plan::Instruction& instruction = program.instructions[i];
    if (!is_copy(instruction.operation)) continue;
    PlannedLane& lane = lanes[instruction.lane];
    ++lane.copies;
    const int from = instruction.arguments.inputs[0];
    lane.bytes += program.buffers[static_cast<std::size_t>(from)].bytes;
    lane.busy_seconds += planned[i].seconds;
  }
  for (const auto& [lane, seconds] : waited_by_lane(program, planned))
    lanes[lane].waited_seconds = seconds;
  return lanes;
}

std::string buffer_rows(std::vector<const plan::Buffer*> buffers, std::size_t most_rows) {
  std::stable_sort(buffers.begin(), buffers.end(),
                   [](const auto* a, const auto* b) { return a->bytes > b->bytes; });
  std::string text;
  std::int64_t others = 0;
  for (std::size_t k = 0; k < buffers.size(); ++k) {
    if (k < most_rows) {
      text += buffer_row(buffers[k]->name, plan::to_string(buffers[k]->kind), buffers[k]->bytes);
    } else {
      others += buffers[k]->bytes;
    }
  }
  if (others > 0)
    text += buffer_row(fmt::format("{} others", buffers.size() - most_rows), "", others);
  return text;
}

std::string buffer_row(const std::string& name, std::string_view kind, std::int64_t bytes) {
  return fmt::format("  {:<44}{:<16}{:>12}\n", name, kind, format_bytes(bytes));
}

std::string explain_tiers(const Setup& setup, const Choice& choice, std::int64_t budget_bytes,
                          const std::string& wanted) {
  std::string text;
  if (setup.below.empty()) return text;
  text += lanes_text(choice.program);
  for (const auto& [tier, below] : setup.below.tiers)
    text += held_text(choice.program, tier, choice.prediction.of(tier));
  return text + worth_text(setup, choice, budget_bytes, wanted);
}

}  // namespace garonne::train
