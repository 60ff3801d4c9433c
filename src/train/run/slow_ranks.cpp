#include "train/run/slow_ranks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "base/median.hpp"

namespace garonne::train {
namespace {

constexpr double least_times = 1.2;
constexpr double least_step_excess_seconds = 1e-3;
constexpr std::size_t most_windows = 10;
constexpr int slow_windows = 8;
constexpr std::size_t steps_of_window = 10;

std::vector<int> of_all_ranks(int mine, dist::Session& session) {
  const std::vector<std::int64_t> all = session.all_gather(std::vector<std::int64_t>{mine});
  return {all.begin(), all.end()};
}

}  // namespace

SlowRankRule::SlowRankRule(std::vector<int> groups)
    : groups_(std::move(groups)), times_(groups_.size()), named_(groups_.size(), false) {}

std::vector<SlowRank> SlowRankRule::take(const std::vector<double>& seconds) {
  expect(seconds.size() == groups_.size(), "seconds of other ranks than there are");
  std::vector<SlowRank> found;
  for (std::size_t rank = 0; rank < groups_.size(); ++rank) {
    std::vector<double> peers;
    for (std::size_t other = 0; other < groups_.size(); ++other)
      if (other != rank && groups_[other] == groups_[rank]) peers.push_back(seconds[other]);
    if (peers.empty()) continue;
    const double usual = median(std::move(peers));
    const bool slow = seconds[rank] > least_times * usual &&
                      seconds[rank] - usual > least_step_excess_seconds && usual > 0;
    std::deque<double>& times = times_[rank];
    times.push_back(slow ? seconds[rank] / usual : 0);
    if (times.size() > most_windows) times.pop_front();
    std::vector<double> of_slow;
    std::ranges::copy_if(times, std::back_inserter(of_slow), [](double one) { return one > 0; });
    const int windows = static_cast<int>(of_slow.size());
    if (named_[rank] || windows < slow_windows) continue;
    named_[rank] = true;
    found.push_back({static_cast<int>(rank), median(std::move(of_slow)), windows});
  }
  return found;
}

double own_seconds(const plan::Program& program,
                   const std::vector<plan::Measurement>& measurements) {
  expect(measurements.size() == program.instructions.size(),
         "a step has a measurement an instruction");
  double seconds = 0;
  for (std::size_t i = 0; i < measurements.size(); ++i) {
    const plan::Instruction& instruction = program.instructions[i];
    if (instruction.lane != Lane::Compute || instruction.channel) continue;
    if (instruction.operation == plan::Operation::Wait ||
        instruction.operation == plan::Operation::Load ||
        instruction.operation == plan::Operation::Report)
      continue;
    seconds += measurements[i].seconds;
  }
  return seconds;
}

SlowRankWatch::SlowRankWatch(const plan::Program& program, int stage, dist::Session& session)
    : program_(program),
      session_(session),
      places_(session.gather(session.place())),
      rule_(of_all_ranks(stage, session)) {}

std::vector<SlowRankWatch::Found> SlowRankWatch::after_step(const exec::StepOutputs& outputs) {
  if (session_.size() == 1) return {};
  window_.push_back(own_seconds(program_, outputs.measurements));
  if (window_.size() < steps_of_window) return {};
  const std::vector<double> all =
      session_.all_gather(std::vector<double>{median(std::exchange(window_, {}))});
  std::vector<Found> found;
  for (const SlowRank& one : rule_.take(all)) {
    if (session_.rank() == 0) found.push_back({one, places_[static_cast<std::size_t>(one.rank)]});
  }
  return found;
}

std::string describe(const SlowRankWatch::Found& found) {
  return fmt::format(
      "{} takes {:.2f} times as long for its own work as the other ranks of its stage, in {} of "
      "the last {} windows of {} steps: they all wait for it. Look for other processes on its "
      "node, a slow clock or a hot device",
      found.place, found.rank.times, found.rank.windows, most_windows, steps_of_window);
}

}  // namespace garonne::train
