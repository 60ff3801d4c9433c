#include "exec/profile/timing.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "base/seconds.hpp"

namespace garonne::exec {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t least_runs = 5;
constexpr std::size_t most_runs = 40;

// What holds a stream ends by itself: else work that waits for the stream would wait for good.
constexpr std::chrono::milliseconds longest_hold(20);

// Nothing that is put on Compute of a device later is begun before go_on(): once the device is
// there, it has all of it, and does not wait for the host between one kernel and the next.
class Hold {
 public:
  explicit Hold(device::Device& device) {
    device.run(
        Lane::Compute,
        [goes_on = goes_on_] {
          const auto until = Clock::now() + longest_hold;
          while (!goes_on->load(std::memory_order_acquire) && Clock::now() < until)
            std::this_thread::yield();
        },
        "a wait for work that is measured");
  }
  ~Hold() { go_on(); }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

  void go_on() { goes_on_->store(true, std::memory_order_release); }

 private:
  const std::shared_ptr<std::atomic<bool>> goes_on_ = std::make_shared<std::atomic<bool>>(false);
};

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
    Hold hold(device);
    const device::Mark start = device.timed_mark(Lane::Compute);
    const auto put = Clock::now();
    work();
    device.launched(Lane::Compute, "a piece of work that is measured");
    const double issue_seconds = seconds_since(put);
    const device::Mark end = device.timed_mark(Lane::Compute);
    hold.go_on();
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
