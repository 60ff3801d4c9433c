#include "train/bench/made_up_run.hpp"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "base/philox.hpp"
#include "train/plans/grid_plan.hpp"
#include "train/setup/lower_tiers.hpp"
#include "train/setup/rank_agreement.hpp"
#include "train/setup/rank_start.hpp"
#include "train/setup/whole_budget.hpp"
#include "train/workload/workload_kind.hpp"

namespace garonne::train {
namespace {

exec::HostBatch made_up_batch(const Setup& setup) {
  exec::HostBatch batch;
  const std::int64_t vocabulary =
      std::max(setup.config.model.vocabulary, setup.facts.vocabulary);  // of tokens
  for (std::int64_t i = 0; i < setup.config.train.micro_batch; ++i) batch.samples.push_back(i);
  for (const auto& value : setup.model.graph.values) {
    if (!value.loaded || value.differentiable) continue;
    const PhiloxKey key = philox_key(1, value.name);
    const auto random = [&](std::int64_t i) {
      return philox_at(key, 0, 0, static_cast<std::uint64_t>(i)).word[0];
    };
    if (value.type != NumberType::Int64) {
      auto& values = batch.fields[value.name];
      values.reserve(static_cast<std::size_t>(value.elements()));
      for (std::int64_t i = 0; i < value.elements(); ++i)
        values.push_back(static_cast<float>(random(i)) / 2147483648.0F - 1.0F);
    } else {
      auto& tokens = batch.values[value.name];
      tokens.reserve(static_cast<std::size_t>(value.elements()));
      for (std::int64_t i = 0; i < value.elements(); ++i)
        tokens.push_back(static_cast<std::int64_t>(random(i)) % vocabulary);
    }
  }
  return batch;
}

std::int64_t bytes_of(const exec::HostBatch& batch) {
  std::size_t bytes = 0;
  for (const auto& [name, values] : batch.values) bytes += values.size() * sizeof(values[0]);
  for (const auto& [name, values] : batch.fields) bytes += values.size() * sizeof(values[0]);
  return static_cast<std::int64_t>(bytes);
}

}  // namespace

MadeUpRun::MadeUpRun(const RunConfig& config, dist::Session& session, double link_bytes_per_second)
    : session_(session) {
  const int threads = agree_on_run(config, session);
  device_ = std::make_unique<RunDevice>(config, session, link_bytes_per_second);
  budget_bytes_ = device_->budget_bytes(config, session);
  session.agree([&] { check_grid(config, session.size()); });
  const DataFacts facts = workload_kind(config.model.kind).made_up_facts(config, session);
  Setup whole;
  const int ranks_on_node = ranks_on_largest_node(session);
  session.agree([&] {
    RunConfig without_validation = config;
    without_validation.evaluation.batches = 0;
    whole = make_setup(without_validation, facts, threads, rank());
    whole.ranks_on_node = ranks_on_node;
  });
  const double rate = link_bytes_per_second;
  if (rate > 0) set_copy_rates({0, rate, rate, rate, rate}, whole, 1);
  agree_on_lower_budgets(whole, budget_bytes_, session);
  const int stage = whole.grid.coordinates_of(rank()).pipeline;
  const StageFloor floor =
      floor_of_rank(whole, stage, budget_bytes_, device_->kept_bytes(), session);
  compute_ = start_computing(threads, *device_, session);
  costs_ = obtain_costs(whole, threads, nlohmann::json::object(), *device_, session);
  apply_costs(costs_, whole);
  choice_ = plan_beside_libraries(device_->kept_bytes(), [&] {
    return choose_together(whole, stage, floor, budget_bytes_, setup_, session);
  });
  products_ = nn::Products::from_json(costs_.products);
  const plan::Program program = program_of_rank(setup_, choice_.program, this->rank());
  axes_ = open_training_axes(setup_, program, *device_, session);
  optimizer_ = optim::make_optimizer(config);
}

MadeUpTrainer::MadeUpTrainer(const MadeUpRun& run, const Choice& choice, std::int64_t limit_bytes)
    : run_(run), program_(program_of_rank(run.setup(), choice.program, run.rank())) {
  const Setup& setup = run.setup();
  RunDevice& device = run.device();
  tier_ = device.make_tier(limit_bytes);
  state_ = first_state(setup, program_, device, *tier_);
  below_ = make_lower_tiers(setup, program_, device, state_);
  gather_parameters(state_, run.axes(), *tier_);
  executor_ = std::make_unique<exec::Executor>(setup.model, program_,
                                               resources_of({.device = device,
                                                             .tier = *tier_,
                                                             .state = state_,
                                                             .products = run.products(),
                                                             .optimizer = run.optimizer(),
                                                             .axes = &run.axes(),
                                                             .below = &below_,
                                                             .session = &run.session()}));
  if (device.kind() == DeviceKind::Cuda) executor_->use_graphs(graph_use(setup.config));
  batch_ = made_up_batch(setup);
}

exec::StepOutputs MadeUpTrainer::step(std::int64_t number) {
  const RunConfig& config = run_.setup().config;
  exec::StepInputs inputs;
  inputs.seed = static_cast<std::uint64_t>(config.train.seed);
  inputs.step = number;
  inputs.loss_scale = static_cast<double>(config.train.micro_batch) /
                      static_cast<double>(config.train.global_batch);
  inputs.learning_rate = config.optimizer.learning_rate;
  inputs.clip_norm = config.optimizer.clip_norm;
  // Training has the next ones ready. A processor waits for its data, so that the copying can be
  // taken off; while a GPU works nobody knows, and copies are made before the step.
  const bool on_gpu = run_.device().kind() == DeviceKind::Cuda;
  constexpr std::int64_t most_ready_bytes = std::int64_t{2} << 30;
  const std::int64_t ready_count =
      on_gpu
          ? std::min<std::int64_t>(program_.micro_batches,
                                   most_ready_bytes / std::max<std::int64_t>(bytes_of(batch_), 1))
          : 0;
  std::vector<exec::HostBatch> ready(static_cast<std::size_t>(ready_count), batch_);
  inputs.load = [&](int) {
    if (ready.empty()) return batch_;
    exec::HostBatch next = std::move(ready.back());
    ready.pop_back();
    return next;
  };
  const auto start = std::chrono::steady_clock::now();
  exec::StepOutputs outputs = executor_->run(inputs);
  step_seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (!on_gpu) step_seconds_ -= outputs.data_seconds;
  return outputs;
}

}  // namespace garonne::train
