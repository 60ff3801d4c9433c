#include "exec/profile/timing.hpp"

#include <algorithm>
#include <chrono>
#include <vector>

namespace garonne::exec {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t least_runs = 5;
constexpr std::size_t most_runs = 40;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::vector<double> repeated(double enough_seconds, const std::function<void()>& prepare,
                             const std::function<void()>& work, const Stopwatch& stopwatch) {
  prepare();
  work();
  std::vector<double> seconds;
  const auto first = Clock::now();
  while (seconds.size() < least_runs ||
         (seconds_since(first) < enough_seconds && seconds.size() < most_runs)) {
    prepare();
    seconds.push_back(stopwatch(work));
  }
  return seconds;
}

}  // namespace

double host_seconds(const std::function<void()>& work) {
  const auto start = Clock::now();
  work();
  return seconds_since(start);
}

Stopwatch stopwatch_of(device::Device& device) {
  return [&device](const std::function<void()>& work) {
    const device::Mark start = device.timed_mark(Lane::Compute);
    work();
    device.launched(Lane::Compute, "a piece of work that is measured");
    const device::Mark end = device.timed_mark(Lane::Compute);
    device.wait(end);
    const double seconds = device.seconds(start, end);
    device.forget_times();
    return seconds;
  };
}

double shortest_seconds(double enough_seconds, const std::function<void()>& work,
                        const Stopwatch& stopwatch) {
  const auto seconds = repeated(
      enough_seconds, [] {}, work, stopwatch);
  return *std::min_element(seconds.begin(), seconds.end());
}

double median_seconds(double enough_seconds, const std::function<void()>& prepare,
                      const std::function<void()>& work, const Stopwatch& stopwatch) {
  auto seconds = repeated(enough_seconds, prepare, work, stopwatch);
  const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
  std::nth_element(seconds.begin(), middle, seconds.end());
  return *middle;
}

}  // namespace garonne::exec
