// Tiers below the device in tables of memory, which have rows for them only where a Program has
// bytes there.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/device.hpp"
#include "plan/program/program.hpp"
#include "plan/program/replay.hpp"

namespace garonne::train {

struct TierRow {
  Tier tier = Tier::Host;
  std::int64_t peak_bytes = 0;
  std::int64_t budget_bytes = 0;
};
std::vector<TierRow> tier_rows(const plan::Program& program, const plan::Prediction& prediction);

// To stand below format_memory_table(); empty where there are none.
std::string format_tier_rows(const std::vector<TierRow>& rows);

}  // namespace garonne::train
