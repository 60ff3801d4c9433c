#include "train/plans/explain_tiers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "plan/program/live_bytes.hpp"
#include "plan/program/spans.hpp"
#include "train/plans/smallest_budget.hpp"
#include "train/setup/lower_tiers.hpp"

namespace garonne::train {
namespace {

constexpr std::size_t most_rows_of_tier = 5;

std::string lanes_text(const plan::Program& program, bool knows_seconds) {
  const std::map<Lane, PlannedLane> lanes = planned_lanes(program);
  if (lanes.empty()) return "nothing is moved\n";
  std::string text =
      fmt::format("copies of a step\n  {:<12}{:>8}{:>14}", "lane", "copies", "bytes");
  if (knows_seconds) text += fmt::format("{:>14}{:>10}{:>14}", "busy", "hidden", "waited for");
  text += '\n';
  for (const auto& [lane, planned] : lanes) {
    text += fmt::format("  {:<12}{:>8}{:>14}", to_string(lane), planned.copies,
                        format_bytes(planned.bytes));
    if (knows_seconds) {
      const double hidden = planned.busy_seconds > 0
                                ? std::max(0.0, 1 - planned.waited_seconds / planned.busy_seconds)
                                : 1;
      text += fmt::format("{:>11.1f} ms{:>8.0f} %{:>11.1f} ms", 1e3 * planned.busy_seconds,
                          100 * hidden, 1e3 * planned.waited_seconds);
    }
    text += '\n';
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
  std::stable_sort(buffers.begin(), buffers.end(),
                   [](const auto* a, const auto* b) { return a->bytes > b->bytes; });
  std::string text =
      fmt::format("on the {} at its peak of {}\n", to_string(tier), format_bytes(bytes.peak_bytes));
  std::int64_t others = 0;
  for (std::size_t k = 0; k < buffers.size(); ++k) {
    if (k >= most_rows_of_tier) {
      others += buffers[k]->bytes;
      continue;
    }
    text += fmt::format("  {:<44}{:<16}{:>12}\n", buffers[k]->name,
                        plan::to_string(buffers[k]->kind), format_bytes(buffers[k]->bytes));
  }
  if (others > 0) {
    text += fmt::format("  {:<60}{:>12}\n",
                        fmt::format("{} others", buffers.size() - most_rows_of_tier),
                        format_bytes(others));
  }
  return text;
}

std::string worth_text(const Setup& setup, const Choice& choice, std::int64_t budget_bytes,
                       const std::string& wanted, bool knows_seconds) {
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
    if (planned && knows_seconds) {
      step = fmt::format("{:.1f} ms ({:+.1f} %)", 1e3 * planned->prediction.seconds,
                         100 * (planned->prediction.seconds / choice.prediction.seconds - 1));
    } else if (planned) {
      step = planned->program.name;
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
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const plan::Instruction& instruction = program.instructions[i];
    const double seconds = spans[i].end - spans[i].begin;
    if (is_copy(instruction.operation)) {
      PlannedLane& lane = lanes[instruction.lane];
      const int from = instruction.arguments.inputs[0];
      ++lane.copies;
      lane.bytes += program.buffers[static_cast<std::size_t>(from)].bytes;
      lane.busy_seconds += seconds;
    } else if (instruction.completes >= 0) {
      const plan::Instruction& awaited =
          program.instructions[static_cast<std::size_t>(instruction.completes)];
      if (is_copy(awaited.operation)) lanes[awaited.lane].waited_seconds += seconds;
    }
  }
  return lanes;
}

std::string explain_tiers(const Setup& setup, const Choice& choice, std::int64_t budget_bytes,
                          const std::string& wanted, bool knows_seconds) {
  std::string text;
  if (setup.below.empty()) return text;
  text += lanes_text(choice.program, knows_seconds);
  for (const auto& [tier, below] : setup.below.tiers)
    text += held_text(choice.program, tier, choice.prediction.of(tier));
  return text + worth_text(setup, choice, budget_bytes, wanted, knows_seconds);
}

}  // namespace garonne::train
