#include "train/plans/tier_rows.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/bytes.hpp"
#include "base/key_limits.hpp"
#include "plan/program/live_bytes.hpp"

namespace garonne::train {

std::vector<TierRow> tier_rows(const plan::Program& program, const plan::Prediction& prediction,
                               std::int64_t saved_copy_bytes) {
  std::vector<TierRow> rows;
  for (const Tier tier : {Tier::Host, Tier::Disk}) {
    const std::int64_t peak = prediction.of(tier).peak_bytes;
    // As much as there is, on a machine that nobody has seen, is no figure.
    const std::int64_t budget = program.tier(tier).budget_bytes;
    const std::int64_t copy = tier == Tier::Host ? saved_copy_bytes : 0;
    if (peak + copy > 0) rows.push_back({tier, peak, budget < most_key_bytes ? budget : 0, copy});
  }
  return rows;
}

std::string format_tier_rows(const std::vector<TierRow>& rows) {
  std::string text;
  for (const TierRow& row : rows) {
    const std::string name(to_string(row.tier));
    const auto line = [&](const std::string& title, std::int64_t bytes) {
      text += fmt::format("  {:<14}{:>16} B {:>12}", title, bytes, format_bytes(bytes));
      // The column is of the device's budget everywhere else.
      if (row.budget_bytes > 0) {
        text += fmt::format(
            "  {:5.1f} % of the {}'s",
            100.0 * static_cast<double>(bytes) / static_cast<double>(row.budget_bytes), name);
      }
      text += '\n';
    };
    if (row.peak_bytes > 0) line(name, row.peak_bytes);
    if (row.saved_copy_bytes > 0) line("saved copy", row.saved_copy_bytes);
    if (row.budget_bytes > 0) line(name + " budget", row.budget_bytes);
  }
  return text;
}

int name_width(const std::vector<std::string>& names) {
  std::size_t width = 10;
  for (const std::string& name : names) width = std::max(width, name.size());
  return static_cast<int>(width);
}

CopyTraffic copy_traffic(const plan::Program& program) {
  CopyTraffic traffic;
  for (const plan::Instruction& instruction : program.instructions) {
    if (!is_copy(instruction.operation)) continue;
    const auto buffer = [&](int id) -> const plan::Buffer& {
      return program.buffers[static_cast<std::size_t>(id)];
    };
    const plan::Buffer& from = buffer(instruction.arguments.inputs[0]);
    const plan::Buffer& to = buffer(instruction.arguments.output);
    const bool comes_back = to.tier == Tier::Device;
    (comes_back ? traffic.in_seconds : traffic.out_seconds) += instruction.seconds;
    if (from.tier == Tier::Device) traffic.out_bytes += from.bytes;
    if (to.tier == Tier::Disk) traffic.disk_bytes += to.bytes;
    if (comes_back) traffic.in_bytes += to.bytes;
  }
  return traffic;
}

std::map<Lane, double> waited_by_lane(const plan::Program& program,
                                      const std::vector<plan::Measurement>& measurements) {
  std::map<Lane, double> seconds;
  for (std::size_t i = 0; i < measurements.size(); ++i) {
    const int completes = program.instructions[i].completes;
    if (completes < 0) continue;
    const plan::Instruction& waited = program.instructions[static_cast<std::size_t>(completes)];
    if (is_copy(waited.operation)) seconds[waited.lane] += measurements[i].seconds;
  }
  return seconds;
}

double waited_for_copies(const plan::Program& program,
                         const std::vector<plan::Measurement>& measurements) {
  double seconds = 0;
  for (const auto& [lane, waited] : waited_by_lane(program, measurements)) seconds += waited;
  return seconds;
}

std::string format_copy_traffic(const plan::Program& program, double seconds) {
  const CopyTraffic traffic = copy_traffic(program);
  if (traffic.out_bytes == 0) return "";
  std::string text = fmt::format("  {} leave the device and {} come back a step",
                                 format_bytes(traffic.out_bytes), format_bytes(traffic.in_bytes));
  constexpr double day = 86400;
  if (seconds > 0 && traffic.disk_bytes > 0) {
    text += fmt::format("; {:.2f} TB a day are written to disk",
                        static_cast<double>(traffic.disk_bytes) / 1e12 / seconds * day);
  }
  return text + "\n";
}

}  // namespace garonne::train
