// Why a plan is as it is: what is live at its peak, what it runs again, and what other budgets
// would cost.
#pragma once

#include <string>

#include "train/setup/planning.hpp"

namespace garonne::train {

// Text for people. `measured`: whether seconds are of a profile.
std::string explain(const Setup& setup, const Choice& choice, std::int64_t budget_bytes,
                    bool measured);

}  // namespace garonne::train
