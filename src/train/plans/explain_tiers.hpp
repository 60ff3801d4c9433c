// What a plan does with the tiers below the device: its copies by lane, what a tier holds, and what
// it is worth.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/lane.hpp"
#include "plan/program/program.hpp"
#include "train/setup/planning.hpp"

namespace garonne::train {

// Of the copies of a step, as planned, of a rank by itself.
struct PlannedLane {
  int copies = 0;
  std::int64_t bytes = 0;
  double busy_seconds = 0;
  double waited_seconds = 0;  // by Compute
};

// Lanes without copies are left out.
std::map<Lane, PlannedLane> planned_lanes(const plan::Program& program);

// A line of a table of buffers, and such a table of the largest, with a line for what is left.
std::string buffer_row(const std::string& name, std::string_view kind, std::int64_t bytes);
std::string buffer_rows(std::vector<const plan::Buffer*> buffers, std::size_t most_rows);

// Text for people; empty where there are no tiers below the device. Plans the stage again without
// each of them. `wanted`: a memory.plan that goes without them, too.
std::string explain_tiers(const Setup& setup, const Choice& choice, std::int64_t budget_bytes,
                          const std::string& wanted);

}  // namespace garonne::train
