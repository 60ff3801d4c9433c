// Tiers below the device in tables of memory, which have rows for them only where a Program has
// bytes there.
#pragma once

#include <cstdint>
#include <map>
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
  std::int64_t saved_copy_bytes = 0;  // beside the peak: what checkpoints are written from
};
// `saved_copy_bytes`: of that on the host (train/plans/saving_plan.hpp); 0 where there is none.
std::vector<TierRow> tier_rows(const plan::Program& program, const plan::Prediction& prediction,
                               std::int64_t saved_copy_bytes = 0);

// To stand below format_memory_table(); empty where there are none.
std::string format_tier_rows(const std::vector<TierRow>& rows);

// Characters that a table has for names of plans: those of the longest, and no fewer than short
// tables look well with.
int name_width(const std::vector<std::string>& names);

// What a step moves between the device and the tiers below it.
struct CopyTraffic {
  std::int64_t out_bytes = 0;
  std::int64_t in_bytes = 0;
  std::int64_t disk_bytes = 0;  // that are written there
  // Of all lanes, as planned.
  double out_seconds = 0;
  double in_seconds = 0;
};
CopyTraffic copy_traffic(const plan::Program& program);
// How long Compute waited for copies, of the measurements of a step of the Program: by lane, and in
// all.
std::map<Lane, double> waited_by_lane(const plan::Program& program,
                                      const std::vector<plan::Measurement>& measurements);
double waited_for_copies(const plan::Program& program,
                         const std::vector<plan::Measurement>& measurements);

// A line; empty where nothing is moved. `seconds` of a step, 0 where nobody knows.
std::string format_copy_traffic(const plan::Program& program, double seconds);

}  // namespace garonne::train
