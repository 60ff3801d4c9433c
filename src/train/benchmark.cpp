#include "train/benchmark.hpp"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <map>

#include "base/error.hpp"
#include "base/philox.hpp"
#include "exec/executor.hpp"
#include "optim/optimizer.hpp"
#include "train/cluster.hpp"
#include "train/planning.hpp"

namespace garonne::train {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::int64_t byte_vocabulary = 256;

exec::HostBatch made_up_batch(const Setup& setup, std::uint64_t number) {
  exec::HostBatch batch;
  const std::int64_t rows = setup.config.train.micro_batch * setup.sizes.sequence;
  batch.values.assign(2, std::vector<std::int64_t>(static_cast<std::size_t>(rows)));
  for (std::int64_t i = 0; i < setup.config.train.micro_batch; ++i) batch.samples.push_back(i);
  const PhiloxKey key = philox_key(1, "made-up tokens");
  for (std::int64_t i = 0; i < rows; ++i) {
    const PhiloxBlock random = philox_at(key, number, 0, static_cast<std::uint64_t>(i));
    for (std::size_t v = 0; v < 2; ++v) {
      batch.values[v][static_cast<std::size_t>(i)] =
          static_cast<std::int64_t>(random.word[v]) % setup.sizes.vocabulary;
    }
  }
  return batch;
}

double declared_operations(const plan::ModelGraph& graph) {
  double operations = 0;
  for (const auto& node : graph.nodes) {
    operations += node.forward.floating_point_operations + node.backward.floating_point_operations;
  }
  return operations;
}

}  // namespace

BenchmarkResult run_benchmark(const RunConfig& config, std::int64_t steps, dist::Session& session) {
  Setup setup;
  std::int64_t budget = 0;
  const int threads = threads_of_rank(config, session.ranks_on_node());
  session.agree([&] {
    check_grid(config, session.size());
    RunConfig without_validation = config;
    without_validation.evaluation.batches = 0;
    setup =
        make_setup(without_validation, config.model.vocabulary > 0 ? 0 : byte_vocabulary, threads);
    budget = resolve_budget(config, session.ranks_on_node());
    choose_program(setup, budget);
  });
  const ComputeSession compute(threads);
  const plan::CostTable costs = obtain_costs(setup, threads, nlohmann::json::object(), session);
  plan::apply_costs(costs, setup.model.graph);
  const Choice choice = choose_program(setup, budget);
  const plan::Program program = program_of_rank(setup, choice, session.rank());
  const nn::Products products = nn::Products::from_json(costs.products);
  const DataAxis data_axis(config, setup.grid, session);
  const auto optimizer = optim::make_optimizer(config);
  exec::DeviceTier tier(budget);
  exec::ModelState state;
  {
    const exec::DeviceScope scope(tier);
    state = exec::initial_state(setup.model, setup.declaration.precision,
                                static_cast<std::uint64_t>(config.train.seed),
                                static_cast<int>(optimizer->state_names().size()));
  }
  exec::Executor executor(setup.model, program,
                          {&tier, &state, &products, optimizer.get(), data_axis.transport(), {}});
  exec::StepInputs inputs;
  inputs.seed = 1;
  inputs.loss_scale = static_cast<double>(config.train.micro_batch) /
                      static_cast<double>(config.train.global_batch);
  inputs.learning_rate = config.optimizer.learning_rate;
  inputs.clip_norm = config.optimizer.clip_norm;

  BenchmarkResult result;
  std::vector<double> seconds;
  exec::StepOutputs last;
  constexpr std::int64_t warm_up = 2;
  for (std::int64_t step = 1; step <= steps + warm_up; ++step) {
    inputs.step = step;
    inputs.load = [&](int micro_batch) {
      return made_up_batch(setup,
                           static_cast<std::uint64_t>(step * program.micro_batches + micro_batch));
    };
    const auto start = Clock::now();
    last = executor.run(inputs);
    if (step > warm_up)
      seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    result.peak_bytes = std::max(result.peak_bytes, last.peak_bytes);
  }
  std::sort(seconds.begin(), seconds.end());
  result.step_seconds = seconds[seconds.size() / 2];
  result.planned_seconds = program.seconds;
  result.planned_peak_bytes = program.peak_bytes;
  result.tokens_per_second =
      static_cast<double>(config.train.global_batch * setup.sizes.sequence) / result.step_seconds;
  struct rusage usage {};
  getrusage(RUSAGE_SELF, &usage);
  result.resident_bytes = usage.ru_maxrss * 1024;
  result.operations_per_second =
      declared_operations(setup.model.graph) * program.micro_batches / result.step_seconds;
  result.product_roof = costs.product_roof;
  std::map<std::string, double> by_kind;
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const plan::Instruction& instruction = program.instructions[i];
    std::string kind(plan::to_string(instruction.operation));
    const bool of_node = instruction.operation == plan::Operation::Forward ||
                         instruction.operation == plan::Operation::ForwardKeep ||
                         instruction.operation == plan::Operation::Backward;
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
