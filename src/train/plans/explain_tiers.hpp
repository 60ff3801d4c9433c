// What a plan does with the tiers below the device: its copies by lane, what a tier holds, and what
// it is worth.
#pragma once

#include <cstdint>
#include <map>
#include <string>

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

// Text for people; empty where there are no tiers below the device. Plans the stage again without
// each of them. `wanted`: a memory.plan that goes without them, too. `knows_seconds`: where nobody
// does, bytes alone are told.
std::string explain_tiers(const Setup& setup, const Choice& choice, std::int64_t budget_bytes,
                          const std::string& wanted, bool knows_seconds);

}  // namespace garonne::train
