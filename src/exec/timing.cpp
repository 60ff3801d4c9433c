#include "exec/timing.hpp"

#include <algorithm>
#include <chrono>
#include <limits>

namespace garonne::exec {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int least_runs = 5;
constexpr int most_runs = 40;

}  // namespace

double shortest_seconds(double enough_seconds, const std::function<void()>& prepare,
                        const std::function<void()>& work) {
  prepare();
  work();
  double shortest = std::numeric_limits<double>::infinity();
  double total = 0;
  for (int runs = 0; runs < least_runs || (total < enough_seconds && runs < most_runs); ++runs) {
    prepare();
    const auto start = Clock::now();
    work();
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    shortest = std::min(shortest, seconds);
    total += seconds;
  }
  return shortest;
}

double shortest_seconds(double enough_seconds, const std::function<void()>& work) {
  return shortest_seconds(
      enough_seconds, [] {}, work);
}

}  // namespace garonne::exec
