#include "device/cuda_budget.hpp"

#include <fmt/format.h>

#include "base/bytes.hpp"
#include "base/error.hpp"

namespace garonne::device {
namespace {

// For what libraries take later, where they take more than they took before.
constexpr std::int64_t left_alone = std::int64_t{256} << 20;

}  // namespace

std::int64_t tier_bytes_of_budget(std::int64_t budget_bytes) {
  expect(budget_bytes >= 0, fmt::format("a budget of {} bytes", budget_bytes));
  const std::int64_t budget = round_up(budget_bytes, cuda_allocation_granularity);
  return budget + round_up(budget / 16, cuda_allocation_granularity);
}

std::int64_t automatic_gpu_budget(std::int64_t free_bytes, int ranks) {
  expect(ranks >= 1 && free_bytes >= 0,
         fmt::format("{} free bytes for {} ranks", free_bytes, ranks));
  // A budget and its sixteenth are what is free. No product that could overflow.
  const std::int64_t budget = free_bytes / 17 * 16 + free_bytes % 17 * 16 / 17 - left_alone;
  const std::int64_t of_rank =
      budget <= 0 ? 0 : budget / ranks / cuda_allocation_granularity * cuda_allocation_granularity;
  if (of_rank == 0) {
    throw ConfigError(
        "memory.budget", "auto",
        fmt::format("{} ({}) are free on the device and {} ranks share it: less than {} is left "
                    "alone. Put fewer ranks on a device, or end what else runs there",
                    free_bytes, format_bytes(free_bytes), ranks, format_bytes(left_alone)));
  }
  return of_rank;
}

}  // namespace garonne::device
