#include "train/bench/budget_benchmark.hpp"

#include <algorithm>
#include <chrono>
#include <limits>
#include <memory>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/median.hpp"
#include "train/bench/made_up_run.hpp"
#include "train/plans/tier_rows.hpp"
#include "train/setup/lower_tiers.hpp"
#include "train/setup/rank_agreement.hpp"
#include "train/setup/run_device.hpp"

namespace garonne::train {
namespace {

using Clock = std::chrono::steady_clock;

struct Contender {
  BudgetRow row;
  std::unique_ptr<MadeUpTrainer> trainer;
  std::vector<double> seconds;
};

// Who takes part: a name, memory.plan, and whether the tiers below the device are used.
struct Entrant {
  std::string name;
  std::string plan;
  bool moves = false;
};

std::vector<Entrant> entrants_of(const BudgetOptions& options, const RunConfig& config) {
  if (options.offloads)
    return {{"recompute", "auto", false}, {"offload", "keep-all", true}, {"both", "auto", true}};
  std::vector<Entrant> entrants = {{"auto", widest_plan(config), true}};
  if (!options.policies) return entrants;
  for (const char* policy : {"uniform", "selective", "full"})
    entrants.push_back({policy, policy, false});
  return entrants;
}

// Plans one contender; nothing to run where nothing fits.
Contender make_contender(const MadeUpRun& run, const Entrant& entrant, double share,
                         std::int64_t budget) {
  Contender contender;
  contender.row.share = share;
  contender.row.budget_bytes = budget;
  contender.row.wanted = entrant.name;
  const Setup setup = entrant.moves ? run.setup() : without_lower_tiers(run.setup());
  try {
    const auto start = Clock::now();
    Choice choice;
    run.session().agree(
        [&] { choice = choose_program(setup, budget, entrant.plan, Effort::FirstThatFits); });
    expect_same_programs(setup.grid, choice.program, run.session());
    contender.row.planning_seconds = std::chrono::duration<double>(Clock::now() - start).count();
    contender.row.fits = true;
    contender.row.plan = choice.program.name;
    contender.row.planned_peak_bytes = choice.program.peak_bytes;
    contender.row.planned_seconds = choice.program.seconds;
    contender.row.host_bytes = choice.prediction.of(Tier::Host).peak_bytes;
    contender.row.disk_bytes = choice.prediction.of(Tier::Disk).peak_bytes;
    contender.row.copied_out_bytes = copy_traffic(choice.program).out_bytes;
    contender.trainer = std::make_unique<MadeUpTrainer>(run, choice, budget);
  } catch (const dist::AgreedError& error) {
    if (error.code() != ExitCode::Infeasible) throw;
    contender.row.fits = false;
  }
  return contender;
}

}  // namespace

std::vector<BudgetRow> run_budget_benchmark(const RunConfig& config, const BudgetOptions& options,
                                            dist::Session& session) {
  session.agree([&] {
    if (device_kind(config) == DeviceKind::Cuda) {
      throw ConfigError("run.device", config.run.device,
                        "is a GPU, whose memory holds one plan at a time: compare plans with "
                        "--run.device cpu");
    }
    if (config.grid.pipeline == 1) return;
    throw ConfigError("grid.pipeline", std::to_string(config.grid.pipeline),
                      "has stages with budgets of their own; plans are compared on one stage: set "
                      "--grid.pipeline 1");
  });
  session.agree([&] {
    if (options.link == 0 || device_kind(config) == DeviceKind::Emulated) return;
    throw ConfigError("--link", std::to_string(options.link),
                      "slows copies of an emulated device: set --run.device emulated and "
                      "--memory.host_budget");
  });
  const MadeUpRun run(config, session, options.link);
  session.agree([&] {
    if (!options.offloads || !run.setup().below.empty()) return;
    throw ConfigError("memory.disk", config.memory.disk,
                      "gives nothing to move to: set it to a folder on a disk, or beside an "
                      "emulated device memory.host_budget to bytes, and leave "
                      "memory.allow at \"auto\"");
  });
  std::vector<Contender> contenders;
  constexpr std::int64_t plenty = std::numeric_limits<std::int64_t>::max() / 4;
  contenders.push_back(make_contender(run, {"keep-all", "keep-all", false}, 1, plenty));
  const plan::Prediction whole = plan::replay(contenders[0].trainer->program());
  const auto activations = static_cast<double>(whole.peak_bytes - whole.static_bytes);
  const auto add = [&](double share, std::int64_t budget) {
    for (const Entrant& entrant : entrants_of(options, config))
      contenders.push_back(make_contender(run, entrant, share, budget));
  };
  for (const double share : options.shares)
    add(share, whole.static_bytes + static_cast<std::int64_t>(share * activations));
  for (const std::int64_t budget : options.budgets)
    add(static_cast<double>(budget - whole.static_bytes) / activations, budget);

  constexpr std::int64_t warm_up = 2;
  for (std::int64_t turn = 1; turn <= options.steps + warm_up; ++turn) {
    // There and back, so that a machine that slows down wrongs nobody.
    for (std::size_t k = 0; k < contenders.size(); ++k) {
      Contender& contender = contenders[turn % 2 == 0 ? k : contenders.size() - 1 - k];
      if (!contender.trainer) continue;
      const exec::StepOutputs outputs = contender.trainer->step(turn);
      const double seconds = contender.trainer->step_seconds();
      contender.row.peak_bytes = std::max(contender.row.peak_bytes, outputs.peak_bytes);
      if (turn > warm_up) contender.seconds.push_back(seconds);
      contender.row.lanes.clear();
      for (const auto& [lane, busy] : outputs.copy_seconds) contender.row.lanes[lane].busy = busy;
      for (const auto& [lane, waited] :
           waited_by_lane(contender.trainer->program(), outputs.measurements))
        contender.row.lanes[lane].waited = waited;
    }
  }

  std::vector<BudgetRow> rows;
  const Contender& base = contenders.front();
  for (auto& contender : contenders) {
    if (contender.trainer) {
      std::vector<double> ratios;
      for (std::size_t turn = 0; turn < base.seconds.size(); ++turn) {
        ratios.push_back(contender.seconds[turn] / base.seconds[turn] - 1);
      }
      contender.row.step_seconds = high_median(contender.seconds);
      contender.row.added_share = high_median(ratios);
      contender.row.planned_added = contender.row.planned_seconds / base.row.planned_seconds - 1;
    }
    rows.push_back(contender.row);
  }
  return rows;
}

}  // namespace garonne::train
