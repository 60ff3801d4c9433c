// Refusals of a GPU's budget, of which libraries have a part that plans do not see.
#pragma once

#include <cstdint>

#include "base/error.hpp"

namespace garonne::train {

// `error` in bytes of memory.budget, with `kept_bytes` of libraries beside what was planned with.
PlanError of_whole_budget(const PlanError& error, std::int64_t kept_bytes);

// What plan() returns; a PlanError of it is of the whole budget.
template <typename Plan>
auto plan_beside_libraries(std::int64_t kept_bytes, const Plan& plan) {
  try {
    return plan();
  } catch (const PlanError& error) {
    if (kept_bytes == 0) throw;
    throw of_whole_budget(error, kept_bytes);
  }
}

}  // namespace garonne::train
