#include "device/cuda_budget.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/bytes.hpp"
#include "base/error.hpp"

namespace garonne::device {
namespace {

// For what libraries take later, where they take more than they took before.
constexpr std::int64_t left_alone = std::int64_t{256} << 20;

// 0 where nothing is left.
std::int64_t budget_of_rank(std::int64_t free_bytes, int ranks) {
  expect(ranks >= 1 && free_bytes >= 0,
         fmt::format("{} free bytes for {} ranks", free_bytes, ranks));
  // A budget and its sixteenth are what is free. No product that could overflow.
  const std::int64_t budget = free_bytes / 17 * 16 + free_bytes % 17 * 16 / 17 - left_alone;
  return budget <= 0 ? 0
                     : budget / ranks / cuda_allocation_granularity * cuda_allocation_granularity;
}

}  // namespace

std::int64_t tier_bytes_of_budget(std::int64_t budget_bytes) {
  expect(budget_bytes >= 0, fmt::format("a budget of {} bytes", budget_bytes));
  const std::int64_t budget = round_up(budget_bytes, cuda_allocation_granularity);
  return budget + round_up(budget / 16, cuda_allocation_granularity);
}

std::int64_t automatic_gpu_budget(std::int64_t free_bytes, int ranks) {
  const std::int64_t of_rank = budget_of_rank(free_bytes, ranks);
  if (of_rank == 0) {
    throw ConfigError(
        "memory.budget", "auto",
        fmt::format("{} ({}) are free on the device and {} ranks share it: less than {} is left "
                    "alone. Put fewer ranks on a device, or end what else runs there",
                    free_bytes, format_bytes(free_bytes), ranks, format_bytes(left_alone)));
  }
  return of_rank;
}

std::int64_t measuring_room(std::int64_t free_bytes, int ranks, std::int64_t needed_bytes) {
  const std::int64_t of_rank = budget_of_rank(free_bytes, ranks);
  if (of_rank == 0) {
    throw ConfigError(
        "run.device", "cuda",
        fmt::format("nodes are measured on the device, once for a model, for which {} are wanted; "
                    "{} are free there, {} ranks share it, and {} are left alone. End what else "
                    "runs there, or put fewer ranks on a device",
                    format_bytes(needed_bytes), format_bytes(free_bytes), ranks,
                    format_bytes(left_alone)));
  }
  return std::min(of_rank, round_up(needed_bytes, cuda_allocation_granularity));
}

}  // namespace garonne::device
