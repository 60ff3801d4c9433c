// Where the parameters are of what runs forward only: on the device, or, where its budget has no
// room for a pass beside all of them, some on a tier below, from where each pass reads them
// (plan/offload/paging.hpp).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/device.hpp"
#include "plan/offload/weight_offload.hpp"
#include "plan/program/program.hpp"
#include "train/setup/planning.hpp"

namespace garonne::train {

class ParameterPlacement {
 public:
  // All on the device.
  ParameterPlacement() = default;
  // The fewest below with which a pass to the loss of the model of `setup` is within the budget of
  // the device; where none are enough all that may go. Where nothing has to move `setup` has no
  // tiers any more. Throws PlanError where there are none and the parameters alone pass the budget,
  // ConfigError (memory.disk_budget, memory.host_budget) where tiers have no room for what moves.
  ParameterPlacement(Setup& setup, std::int64_t budget_bytes);

  // A forward Program of the same parameters, which has them there. Where it has no room within the
  // budget, whatever comes and goes, its peak is the least that it takes.
  plan::Program place(plan::Program program) const;

  // With which the state is made; null where it is on the device as a whole.
  const plan::Program* program() const { return program_ ? &*program_ : nullptr; }
  std::int64_t bytes_below() const;
  // For who has too little room: where parameters may be elsewhere. Empty where some are.
  std::string advice() const;

 private:
  std::optional<plan::Program> placed(plan::Program program, std::int64_t budget_bytes) const;

  std::map<Tier, plan::TierLinks> links_;
  std::int64_t budget_bytes_ = 0;
  std::optional<plan::Program> program_;
};

}  // namespace garonne::train
