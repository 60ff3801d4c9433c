// What a Program moves below where the tiers have room for so much only. Which moves are tried does
// not depend on how much that is, which says only which of them fit: with more room no move is
// lost, so that no plan gets slower by it, and no smallest budget larger.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/offload/mover.hpp"
#include "plan/offload/tier_planner.hpp"
#include "plan/program/program.hpp"

namespace garonne::plan {

class TierMoves {
 public:
  // `forward` as of a Mover. All outlive it.
  TierMoves(const Program& program, const LowerTiers& below, const Program* forward);

  // What the device holds at least, however much room there is below.
  std::int64_t least_bytes() const;
  // Whether there is a way into `budget_bytes` of the device and those of the tiers.
  bool can(std::int64_t budget_bytes) const;
  // All of them.
  std::vector<MovedProgram> within(std::int64_t budget_bytes) const;

 private:
  bool in_all_ways(std::int64_t budget_bytes, const UseMoved& use) const;

  const Program& program_;
  const LowerTiers& below_;
  const Program* forward_;
  LowerTiers ample_;
  std::int64_t passes_bytes_ = 0;  // the most that is there during one
  std::int64_t room_bytes_ = 0;    // of all tiers
};

}  // namespace garonne::plan
