#include "train/run/step_tracer.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/bytes.hpp"
#include "base/counted.hpp"
#include "base/error.hpp"
#include "base/file.hpp"

namespace garonne::train {
namespace {

// More in one file no viewer opens in reasonable time.
constexpr int most_ranks = 64;
// The first steps of a process are not like those that follow.
constexpr std::int64_t steps_before = 2;

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "?";
}

}  // namespace

StepTracer::StepTracer(TraceRequest wish, std::int64_t next_step, std::int64_t last_step,
                       const plan::Program& program, std::int64_t most_bytes)
    : wish_(std::move(wish)), program_(program), most_bytes_(most_bytes) {
  if (wish_.first_step == 0) wish_.first_step = std::min(next_step + steps_before, last_step);
}

bool StepTracer::take(std::int64_t step, std::chrono::system_clock::time_point begin,
                      double seconds, const exec::StepOutputs& outputs, dist::Session& session) {
  if (written_ || step < wish_.first_step) return false;
  plan::TracedStep& traced = steps_.emplace_back();
  traced.step = step;
  traced.begin_seconds = std::chrono::duration<double>(begin.time_since_epoch()).count();
  traced.seconds = seconds;
  traced.measurements = outputs.measurements;
  traced.live_bytes_below = outputs.live_bytes_below;
  if (step + 1 < wish_.first_step + wish_.steps) return false;
  write(session);
  return true;
}

bool StepTracer::finish(dist::Session& session) {
  if (written_) return false;
  if (steps_.empty()) {
    outcome_ = fmt::format("note: the run ended before step {}, so that there is no trace in {}\n",
                           wish_.first_step, wish_.path);
    return true;
  }
  write(session);
  return true;
}

void StepTracer::write(dist::Session& session) {
  written_ = true;
  // Clocks of hosts differ by little; the earliest beginning is that of the trace.
  constexpr double nanoseconds = 1e9;
  const std::int64_t latest_negative = session.all_reduce_max(std::vector<std::int64_t>{
      -static_cast<std::int64_t>(steps_.front().begin_seconds * nanoseconds)})[0];
  for (auto& step : steps_)
    step.begin_seconds += static_cast<double>(latest_negative) / nanoseconds;
  const std::string events =
      session.rank() < most_ranks ? plan::trace_events(program_, host_name(), steps_) : "";
  std::int64_t bytes = 0;
  for (const std::int64_t of_rank : session.all_gather(std::vector{std::ssize(events)}))
    bytes += of_rank;
  if (bytes > most_bytes_) {
    outcome_ = fmt::format(
        "warning: --trace: {} on {} are {}, more than the {} that can be gathered; the run goes on "
        "without it\n",
        counted(std::ssize(steps_), "step"), counted(std::min(most_ranks, session.size()), "rank"),
        format_bytes(bytes), format_bytes(most_bytes_));
    return;
  }
  const std::vector<std::string> of_ranks = session.gather(events);
  if (session.rank() != 0) return;
  // Training is worth more than a look at it.
  try {
    write_file_durably(wish_.path, plan::trace_file(of_ranks));
    outcome_ = fmt::format("trace of {} steps: {}\n", steps_.size(), wish_.path);
  } catch (const IoError& failure) {
    outcome_ = fmt::format("warning: --trace: {}; the run goes on without it\n", failure.what());
  }
}

}  // namespace garonne::train
