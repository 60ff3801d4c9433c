#include "train/bench/budget_benchmark.hpp"

#include <algorithm>
#include <chrono>
#include <limits>
#include <memory>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/index.hpp"
#include "base/median.hpp"
#include "train/bench/made_up_run.hpp"
#include "train/plans/grid_plan.hpp"
#include "train/plans/tier_rows.hpp"
#include "train/setup/available_memory.hpp"
#include "train/setup/lower_tiers.hpp"
#include "train/setup/rank_agreement.hpp"
#include "train/setup/run_device.hpp"

namespace garonne::train {
namespace {

using Clock = std::chrono::steady_clock;

struct Contender {
  BudgetRow row;
  Choice choice;
  std::unique_ptr<MadeUpTrainer> trainer;  // while it runs
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

// Of all ranks.
std::int64_t most(std::int64_t value, dist::Session& session) {
  return session.all_reduce_max(std::vector{value})[0];
}

// Of all stages, where they have different ones.
std::string names_of_plans(const MadeUpRun& run, const std::string& own) {
  const std::vector<std::string> all = run.session().gather(own);
  const Grid& grid = run.setup().grid;
  std::string names = own;
  if (all.empty() || std::count(all.begin(), all.end(), own) == grid.ranks()) return names;
  for (int stage = 1; stage < grid.shape().pipeline; ++stage)
    names += " | " + all[static_cast<std::size_t>(grid.rank_of({0, stage, 0}))];
  return names;
}

// Plans one contender; nothing is planned where some rank's plan does not fit.
Contender make_contender(const MadeUpRun& run, const Entrant& entrant, double share,
                         std::int64_t budget) {
  dist::Session& session = run.session();
  Contender contender;
  BudgetRow& row = contender.row;
  row.share = share;
  row.budget_bytes = budget;
  row.wanted = entrant.name;
  const Setup setup = entrant.moves ? run.setup() : without_lower_tiers(run.setup());
  Choice& choice = contender.choice;
  try {
    const auto start = Clock::now();
    session.agree(
        [&] { choice = choose_program(setup, budget, entrant.plan, Effort::FirstThatFits); });
    expect_same_programs(setup.grid, choice.program, session);
    row.planning_seconds = std::chrono::duration<double>(Clock::now() - start).count();
  } catch (const dist::AgreedError& error) {
    if (error.code() != ExitCode::Infeasible) throw;
    return contender;
  }
  row.fits = true;
  row.plan = names_of_plans(run, choice.program.name);
  row.planned_peak_bytes = most(choice.program.peak_bytes, session);
  row.host_bytes = most(choice.prediction.of(Tier::Host).peak_bytes, session);
  row.disk_bytes = most(choice.prediction.of(Tier::Disk).peak_bytes, session);
  row.copied_out_bytes = most(copy_traffic(choice.program).out_bytes, session);
  const plan::Program program = program_of_rank(setup, choice.program, run.rank());
  row.planned_seconds = seconds_of_step(setup, program, session);
  return contender;
}

// What a rank has for the plans of contenders; without end where nobody says.
std::int64_t room_here(const MadeUpRun& run) {
  const AvailableMemory free =
      available_memory(MemorySources::of_this_process(), run.setup().ranks_on_node);
  const std::int64_t bytes =
      free.source.empty() ? std::numeric_limits<std::int64_t>::max() : free.bytes;
  return run.session().all_reduce_min(std::vector{bytes})[0];
}

// Of the rank's memory: an emulated device and its host have one.
std::int64_t resident_bytes(const BudgetRow& row) {
  return row.planned_peak_bytes + row.host_bytes;
}

constexpr std::int64_t warm_up = 2;  // turns that are not timed

void run_step(std::int64_t turn, Contender& contender, dist::Session& session) {
  session.barrier();  // nobody waits for stages that are at another contender yet
  BudgetRow& row = contender.row;
  const exec::StepOutputs outputs = contender.trainer->step(turn);
  row.peak_bytes = std::max(row.peak_bytes, outputs.peak_bytes);
  if (turn > warm_up) contender.seconds.push_back(contender.trainer->step_seconds());
  row.lanes.clear();
  for (const auto& [lane, busy] : outputs.copy_seconds) row.lanes[lane].busy = busy;
  for (const auto& [lane, waited] :
       waited_by_lane(contender.trainer->program(), outputs.measurements))
    row.lanes[lane].waited = waited;
}

// Those that ran are held side by side, or one at a time.
void run_turns(const MadeUpRun& run, std::int64_t steps, bool one_at_a_time,
               std::vector<Contender>& contenders) {
  const auto begin = [&](Contender& contender) {
    contender.trainer =
        std::make_unique<MadeUpTrainer>(run, contender.choice, contender.row.budget_bytes);
  };
  dist::Session& session = run.session();
  if (one_at_a_time) {
    for (Contender& contender : contenders) {
      if (!contender.row.runs) continue;
      begin(contender);
      for (std::int64_t turn = 1; turn <= steps + warm_up; ++turn)
        run_step(turn, contender, session);
      contender.trainer.reset();
    }
    return;
  }
  for (Contender& contender : contenders)
    if (contender.row.runs) begin(contender);
  for (std::int64_t turn = 1; turn <= steps + warm_up; ++turn) {
    // There and back, so that a machine that slows down wrongs nobody.
    for (std::size_t k = 0; k < contenders.size(); ++k) {
      Contender& contender = contenders[turn % 2 == 0 ? k : contenders.size() - 1 - k];
      if (contender.row.runs) run_step(turn, contender, session);
    }
  }
}

// Beside keep-all: of the same turns, where both ran in turns; of its planned time where that did
// not run.
double added_share(const Contender& contender, const Contender& base, bool one_at_a_time) {
  if (!base.row.runs) return high_median(contender.seconds) / base.row.planned_seconds - 1;
  if (one_at_a_time) return high_median(contender.seconds) / high_median(base.seconds) - 1;
  std::vector<double> ratios;
  for (std::size_t turn = 0; turn < base.seconds.size(); ++turn)
    ratios.push_back(contender.seconds[turn] / base.seconds[turn] - 1);
  return high_median(ratios);
}

// Of the rank whose copies take longest.
std::map<Lane, LaneSeconds> longest_lanes(const std::map<Lane, LaneSeconds>& own,
                                          dist::Session& session) {
  std::vector<double> seconds(2 * lane_count);  // of each lane busy and waited
  double busy = 0;
  for (const auto& [lane, one] : own) {
    seconds[2 * as_index(static_cast<int>(lane))] = one.busy;
    seconds[2 * as_index(static_cast<int>(lane)) + 1] = one.waited;
    busy += one.busy;
  }
  const std::vector<double> of_ranks = session.all_gather(std::vector{busy});
  const auto rank = std::max_element(of_ranks.begin(), of_ranks.end()) - of_ranks.begin();
  const std::vector<double> all = session.all_gather(seconds);
  std::map<Lane, LaneSeconds> lanes;
  for (int lane = 0; lane < lane_count; ++lane) {
    const std::size_t place =
        as_index(static_cast<int>(rank)) * seconds.size() + 2 * as_index(lane);
    if (all[place] > 0 || all[place + 1] > 0)
      lanes[static_cast<Lane>(lane)] = {all[place], all[place + 1]};
  }
  return lanes;
}

// Bytes of the rank that needs most where everything is kept.
struct WholeBytes {
  std::int64_t fixed = 0;
  std::int64_t kept = 0;  // beyond these
};

WholeBytes whole_bytes(const plan::Prediction& whole, dist::Session& session) {
  const std::vector<std::int64_t> of_ranks =
      session.all_gather(std::vector{whole.peak_bytes, whole.static_bytes});
  WholeBytes bytes;
  for (std::size_t rank = 0; 2 * rank < of_ranks.size(); ++rank) {
    const std::int64_t peak = of_ranks[2 * rank];
    const std::int64_t fixed = of_ranks[2 * rank + 1];
    if (peak > bytes.fixed + bytes.kept) bytes = {fixed, peak - fixed};
  }
  return bytes;
}

}  // namespace

std::vector<BudgetRow> run_budget_benchmark(const RunConfig& config, const BudgetOptions& options,
                                            dist::Session& session) {
  session.agree([&] {
    if (device_kind(config) == DeviceKind::Cuda) {
      throw ConfigError("run.device", config.run.device,
                        "is a GPU, on which plans are timed by one command each: run garonne bench "
                        "with each memory.budget, or compare plans with --run.device cpu");
    }
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
  const WholeBytes whole = whole_bytes(contenders[0].choice.prediction, session);
  const auto activations = static_cast<double>(whole.kept);
  const auto add = [&](double share, std::int64_t budget) {
    for (const Entrant& entrant : entrants_of(options, config))
      contenders.push_back(make_contender(run, entrant, share, budget));
  };
  for (const double share : options.shares)
    add(share, whole.fixed + static_cast<std::int64_t>(share * activations));
  for (const std::int64_t budget : options.budgets)
    add(static_cast<double>(budget - whole.fixed) / activations, budget);

  const std::int64_t room = room_here(run);
  std::int64_t side_by_side = 0;
  for (Contender& contender : contenders) {
    BudgetRow& row = contender.row;
    row.runs = row.fits && resident_bytes(row) <= room;
    if (row.runs) side_by_side += resident_bytes(row);
  }
  const bool one_at_a_time = options.one_at_a_time || side_by_side > room;
  run_turns(run, options.steps, one_at_a_time, contenders);

  std::vector<BudgetRow> rows;
  const Contender& base = contenders.front();
  for (Contender& contender : contenders) {
    BudgetRow& row = contender.row;
    row.one_at_a_time = one_at_a_time;
    if (row.fits) row.planned_added = row.planned_seconds / base.row.planned_seconds - 1;
    if (row.runs) {
      row.peak_bytes = most(row.peak_bytes, session);
      row.lanes = longest_lanes(row.lanes, session);
      contender.seconds = session.all_reduce_max(contender.seconds);
      row.step_seconds = high_median(contender.seconds);
      row.added_share = added_share(contender, base, one_at_a_time);
    }
    rows.push_back(row);
  }
  return rows;
}

}  // namespace garonne::train
