#include "train/plans/tier_rows.hpp"

#include <fmt/format.h>

#include "base/bytes.hpp"
#include "plan/program/live_bytes.hpp"

namespace garonne::train {

std::vector<TierRow> tier_rows(const plan::Program& program, const plan::Prediction& prediction) {
  std::vector<TierRow> rows;
  for (const Tier tier : {Tier::Host, Tier::Disk}) {
    const std::int64_t peak = prediction.of(tier).peak_bytes;
    if (peak > 0) rows.push_back({tier, peak, program.tier(tier).budget_bytes});
  }
  return rows;
}

std::string format_tier_rows(const std::vector<TierRow>& rows) {
  std::string text;
  const auto line = [&](const std::string& name, std::int64_t bytes, std::int64_t whole) {
    text += fmt::format("  {:<14}{:>16} B {:>12}  {:5.1f} %\n", name, bytes, format_bytes(bytes),
                        100.0 * static_cast<double>(bytes) / static_cast<double>(whole));
  };
  for (const TierRow& row : rows) {
    const std::string name(to_string(row.tier));
    line(name, row.peak_bytes, row.budget_bytes > 0 ? row.budget_bytes : row.peak_bytes);
    if (row.budget_bytes > 0) line(name + " budget", row.budget_bytes, row.budget_bytes);
  }
  return text;
}

}  // namespace garonne::train
