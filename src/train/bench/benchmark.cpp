#include "train/bench/benchmark.hpp"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <map>

#include "train/bench/made_up_run.hpp"
#include "train/plans/grid_plan.hpp"
#include "train/plans/step_rates.hpp"
#include "train/workload/workload_kind.hpp"

namespace garonne::train {

BenchmarkResult run_benchmark(const RunConfig& config, std::int64_t steps, dist::Session& session) {
  const MadeUpRun run(config, session);
  const Setup& setup = run.setup();
  MadeUpTrainer trainer(run, run.choice(), run.budget_bytes());
  const plan::Program& program = trainer.program();
  const double planned_seconds = seconds_of_step(setup, program, session);

  BenchmarkResult result;
  std::vector<double> seconds;
  exec::StepOutputs last;
  constexpr std::int64_t warm_up = 2;
  for (std::int64_t step = 1; step <= steps + warm_up; ++step) {
    last = trainer.step(step);
    if (step > warm_up) seconds.push_back(trainer.step_seconds());
    result.peak_bytes = std::max(result.peak_bytes, last.peak_bytes);
  }
  std::sort(seconds.begin(), seconds.end());
  result.step_seconds = seconds[seconds.size() / 2];
  result.planned_seconds = planned_seconds;
  result.planned_peak_bytes = session.all_reduce_max(std::vector{program.peak_bytes})[0];
  if (program.peak_bytes < result.planned_peak_bytes) result.peak_bytes = 0;
  result.peak_bytes = session.all_reduce_max(std::vector{result.peak_bytes})[0];
  result.samples_per_second = static_cast<double>(config.train.global_batch) / result.step_seconds;
  result.tokens_per_second =
      result.samples_per_second *
      static_cast<double>(workload_kind(config.model.kind).tokens_per_sample(config));
  struct rusage usage {};
  getrusage(RUSAGE_SELF, &usage);
  result.resident_bytes = usage.ru_maxrss * 1024;
  result.product_roof = run.costs().product_roof;
  const ModelWork work = model_work(setup.config, setup.facts, setup.declaration.threads,
                                    setup.declaration.device, result.product_roof);
  result.operations_per_second =
      rates_of(work, session.size(), result.step_seconds).operations_per_second;
  std::map<std::string, double> by_kind;
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const plan::Instruction& instruction = program.instructions[i];
    std::string kind(plan::to_string(instruction.operation));
    const bool of_node = plan::is_forward(instruction.operation) ||
                         plan::is_backward(instruction.operation) ||
                         instruction.arguments.exchanged >= 0;
    if (of_node)
      kind += " " + setup.model.graph.nodes[static_cast<std::size_t>(instruction.node_index)].kind;
    by_kind[kind] += last.measurements[i].seconds;
  }
  result.seconds_by_kind.assign(by_kind.begin(), by_kind.end());
  std::sort(result.seconds_by_kind.begin(), result.seconds_by_kind.end(),
            [](const auto& a, const auto& b) { return a.second > b.second; });
  return result;
}

}  // namespace garonne::train
