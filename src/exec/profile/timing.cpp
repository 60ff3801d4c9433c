#include "exec/profile/timing.hpp"

#include <algorithm>
#include <chrono>
#include <vector>

namespace garonne::exec {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t least_runs = 5;
constexpr std::size_t most_runs = 40;

std::vector<double> repeated(double enough_seconds, const std::function<void()>& prepare,
                             const std::function<void()>& work) {
  prepare();
  work();
  const auto seconds_since = [](Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  std::vector<double> seconds;
  const auto first = Clock::now();
  while (seconds.size() < least_runs ||
         (seconds_since(first) < enough_seconds && seconds.size() < most_runs)) {
    prepare();
    const auto start = Clock::now();
    work();
    seconds.push_back(seconds_since(start));
  }
  return seconds;
}

}  // namespace

double shortest_seconds(double enough_seconds, const std::function<void()>& work) {
  const auto seconds = repeated(
      enough_seconds, [] {}, work);
  return *std::min_element(seconds.begin(), seconds.end());
}

double median_seconds(double enough_seconds, const std::function<void()>& prepare,
                      const std::function<void()>& work) {
  auto seconds = repeated(enough_seconds, prepare, work);
  const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
  std::nth_element(seconds.begin(), middle, seconds.end());
  return *middle;
}

}  // namespace garonne::exec
