#include "exec/profile/timing.hpp"

#include <algorithm>
#include <chrono>
#include <vector>

#include "base/seconds.hpp"

namespace garonne::exec {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t least_runs = 5;
constexpr std::size_t most_runs = 40;

struct Runs {
  std::vector<double> seconds;
  std::vector<double> issue_seconds;
};

Runs repeated(double enough_seconds, const std::function<void()>& prepare,
              const std::function<void()>& work, const Stopwatch& stopwatch) {
  prepare();
  work();
  Runs runs;
  const auto first = Clock::now();
  while (runs.seconds.size() < least_runs ||
         (seconds_since(first) < enough_seconds && runs.seconds.size() < most_runs)) {
    prepare();
    const WorkSeconds run = stopwatch(work);
    runs.seconds.push_back(run.seconds);
    runs.issue_seconds.push_back(run.issue_seconds);
  }
  return runs;
}

double median_of(std::vector<double>& seconds) {
  const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
  std::nth_element(seconds.begin(), middle, seconds.end());
  return *middle;
}

}  // namespace

WorkSeconds host_seconds(const std::function<void()>& work) {
  const auto start = Clock::now();
  work();
  return {seconds_since(start), 0};
}

Stopwatch stopwatch_of(device::Device& device) {
  return [&device](const std::function<void()>& work) {
    const device::Mark start = device.timed_mark(Lane::Compute);
    const auto put = Clock::now();
    work();
    device.launched(Lane::Compute, "a piece of work that is measured");
    const double issue_seconds = seconds_since(put);
    const device::Mark end = device.timed_mark(Lane::Compute);
    device.wait(end);
    const double seconds = device.seconds(start, end);
    device.forget_times();
    return WorkSeconds{seconds, issue_seconds};
  };
}

WorkSeconds shortest_seconds(double enough_seconds, const std::function<void()>& work,
                             const Stopwatch& stopwatch) {
  const Runs runs = repeated(
      enough_seconds, [] {}, work, stopwatch);
  return {*std::ranges::min_element(runs.seconds), *std::ranges::min_element(runs.issue_seconds)};
}

WorkSeconds median_seconds(double enough_seconds, const std::function<void()>& prepare,
                           const std::function<void()>& work, const Stopwatch& stopwatch) {
  Runs runs = repeated(enough_seconds, prepare, work, stopwatch);
  return {median_of(runs.seconds), median_of(runs.issue_seconds)};
}

}  // namespace garonne::exec
