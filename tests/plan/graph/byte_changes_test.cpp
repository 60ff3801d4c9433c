// Bytes over budget by blocks of steps, against a sum over all of them.
#include "plan/graph/byte_changes.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "base/index.hpp"

namespace garonne::plan {
namespace {

std::int64_t slow_excess(const std::vector<std::int64_t>& during, std::int64_t budget_bytes) {
  std::int64_t sum = 0;
  for (const std::int64_t bytes : during) sum += std::max<std::int64_t>(0, bytes - budget_bytes);
  return sum;
}

TEST(ByteChanges, ExcessIsThatOfAllSteps) {
  std::mt19937 random(5);
  const auto below = [&](int most) { return static_cast<int>(random() % as_index(most)); };
  int whole_blocks = 0;
  for (int attempt = 0; attempt < 3000; ++attempt) {
    // Bytes that wander, so that blocks are within the budget, over it, or both.
    std::vector<std::int64_t> during(as_index(1 + below(300)));
    std::int64_t bytes = 500;
    for (std::int64_t& step : during) step = bytes += below(41) - 20;
    const std::int64_t budget = 300 + below(400);
    StepBytes steps;
    steps.assign(during);
    std::vector<std::int64_t> changed = during;
    ByteChanges changes;
    const int until = below(static_cast<int>(during.size()));
    for (int change = below(5); change >= 0; --change) {
      const int from = below(until + 1);
      const std::int64_t added = below(200) - 100;
      changes.add(from, added);
      for (int i = from; i <= until; ++i) changed[as_index(i)] += added;
      whole_blocks += until - from >= 64 ? 1 : 0;
    }
    EXPECT_EQ(changes.excess(steps, budget, until),
              slow_excess(changed, budget) - slow_excess(during, budget));
  }
  EXPECT_GT(whole_blocks, 1000);
}

}  // namespace
}  // namespace garonne::plan
