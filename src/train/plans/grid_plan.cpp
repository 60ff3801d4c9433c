#include "train/plans/grid_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.hpp"
#include "plan/model/model_hash.hpp"
#include "plan/program/launch_order.hpp"
#include "plan/program/model_check.hpp"
#include "plan/program/proofs.hpp"
#include "plan/program/rank_sums_check.hpp"
#include "train/plans/cluster_costs.hpp"
#include "train/plans/layout_check.hpp"
#include "train/plans/stage_replay.hpp"
#include "train/setup/rank_agreement.hpp"
#include "train/setup/run_device.hpp"
#include "train/setup/whole_budget.hpp"

namespace garonne::train {

namespace {

// The setups of all stages; none where seconds cut the model as it cannot be cut.
std::optional<std::vector<Setup>> stages_of(const Setup& whole, Cut cut,
                                            const plan::GridLinks* links) {
  std::vector<Setup> stages;
  try {
    for (int stage = 0; stage < whole.grid.shape().pipeline; ++stage) {
      stages.push_back(setup_of_stage(whole, stage, cut));
      if (links != nullptr) set_links(*links, stage, stages.back());
    }
  } catch (const ConfigError&) {
    if (cut == Cut::AsDeclared) throw;
    return std::nullopt;
  }
  return stages;
}

// None where the stage does not fit as its seconds cut it; as it was declared it does.
std::optional<Choice> choose_or_not(const Setup& setup, const StageFloor& floor,
                                    std::int64_t budget_bytes, Effort effort, Cut cut) {
  const std::string& wanted = setup.config.memory.plan;
  if (cut == Cut::AsDeclared) return choose_as_cut(setup, floor, budget_bytes, wanted, effort);
  return choose_in_cut(setup, floor, budget_bytes, wanted, effort);
}

// None where some stage does not fit.
std::optional<std::vector<PlannedStage>> plan_stages(std::vector<Setup> stages,
                                                     const std::vector<StageFloor>& floors,
                                                     std::int64_t budget_bytes, Cut cut,
                                                     Effort effort) {
  std::vector<PlannedStage> plans;
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    PlannedStage planned;
    planned.setup = std::move(stages[stage]);
    auto choice = choose_or_not(planned.setup, floors[stage], budget_bytes, effort, cut);
    if (!choice) return std::nullopt;
    planned.choice = std::move(*choice);
    plans.push_back(std::move(planned));
  }
  return plans;
}

std::vector<StageFloor> floors_of(const Setup& whole, std::int64_t budget_bytes, Effort effort) {
  std::vector<StageFloor> floors;
  std::optional<PlanError> worst;
  for (int stage = 0; stage < whole.grid.shape().pipeline; ++stage) {
    try {
      floors.push_back(
          floor_of_stage(whole, stage, budget_bytes, whole.config.memory.plan, effort));
    } catch (const PlanError& error) {
      if (!worst || error.needed_bytes() > worst->needed_bytes()) worst = error;
    }
  }
  if (worst) throw *worst;
  return floors;
}

// Whether every rank has a plan at once, by keeping everything: that takes less time than to read
// what another one sends.
bool is_found_at_once(const Setup& setup, const Choice& choice) {
  const auto moves = [](const plan::Instruction& one) { return is_copy(one.operation); };
  const auto& instructions = choice.program.instructions;
  return setup.config.memory.plan == "auto" &&
         choice.program.name.starts_with(plan::stage_solvers().front().name) &&
         std::none_of(instructions.begin(), instructions.end(), moves);
}

// From the rank that planned the stage to the others of it; empty where they need not be told.
std::string sent_in_stage(const Grid& grid, int stage, const Setup& setup,
                          const std::optional<Choice>& choice, dist::Session& session) {
  if (grid.shape().data * grid.shape().tensor == 1) return {};
  std::string text;
  if (choice && !is_found_at_once(setup, *choice)) {
    const nlohmann::ordered_json json = {{"model", plan::model_hash(setup.model.graph)},
                                         {"program", plan::to_json(choice->program, {}, {})}};
    text = json.dump();
  }
  std::string sent;
  for (int of = 0; of < grid.shape().pipeline; ++of) {
    std::string heard = session.broadcast(text, grid.rank_of({0, of, 0}));
    if (of == stage) sent = std::move(heard);
  }
  return sent;
}

plan::Program received(const std::string& sent, const Setup& setup) {
  const nlohmann::json json = nlohmann::json::parse(sent);
  expect(json.at("model") == plan::model_hash(setup.model.graph),
         "the ranks of one stage have the same model");
  plan::Program program =
      plan::program_from_json(json.at("program"), "the Program of the stage", FileOwner::Run);
  plan::check_against_model(program, setup.model.graph);
  return program;
}

}  // namespace

GridPlan plan_grid(const Setup& whole, std::int64_t budget_bytes, const plan::Cluster* cluster,
                   Effort effort) {
  check_zero(whole.config);
  GridPlan grid;
  std::optional<plan::GridLinks> links;
  if (cluster != nullptr) links.emplace(*cluster, whole.grid);
  const std::vector<StageFloor> floors = floors_of(whole, budget_bytes, effort);
  for (const auto& floor : floors) {
    grid.minimum_budget_bytes = std::max(grid.minimum_budget_bytes, floor.bytes);
    grid.minimum_on_device_bytes = std::max(grid.minimum_on_device_bytes, floor.on_device_bytes);
    const auto add = [](const std::map<std::string, std::int64_t>& by_way,
                        std::map<std::string, std::int64_t>& most) {
      for (const auto& [way, bytes] : by_way) most[way] = std::max(most[way], bytes);
    };
    add(floor.bytes_by_way, grid.minimum_bytes_by_way);
    add(floor.bytes_without_way, grid.minimum_bytes_without_way);
  }
  std::optional<std::vector<PlannedStage>> plans;
  for (const Cut cut : {Cut::BySeconds, Cut::AsDeclared}) {
    grid.cut_as_declared = cut == Cut::AsDeclared;
    auto stages = stages_of(whole, cut, links ? &*links : nullptr);
    if (stages) plans = plan_stages(std::move(*stages), floors, budget_bytes, cut, effort);
    if (plans) break;
  }
  grid.stages = std::move(*plans);
  std::vector<plan::Program> programs;
  for (std::size_t stage = 0; stage < grid.stages.size(); ++stage) {
    const PlannedStage& planned = grid.stages[stage];
    programs.push_back(program_of_rank(planned.setup, planned.choice.program,
                                       whole.grid.rank_of({0, static_cast<int>(stage), 0})));
  }
  const StepPartsOfStages parts(programs, links ? &*links : nullptr);
  for (std::size_t stage = 0; stage < programs.size(); ++stage) {
    const PlannedStage& planned = grid.stages[stage];
    const GridShape& shape = whole.grid.shape();
    plan::prove(programs[stage], planned.setup.model.graph);
    plan::check_rank_sums(programs[stage], shape);
    // The last of the stage's ranks has the padding of the shards, and counts no sums of others.
    const int last =
        whole.grid.rank_of({shape.data - 1, static_cast<int>(stage), shape.tensor - 1});
    if (last != programs[stage].rank) {
      const plan::Program other = program_of_rank(planned.setup, planned.choice.program, last);
      plan::prove(other, planned.setup.model.graph);
      plan::check_rank_sums(other, shape);
    }
    if (!planned.choice.evaluation.instructions.empty()) {
      plan::prove(planned.choice.evaluation, planned.setup.model.graph);
    }
  }
  std::vector<plan::Prediction> predictions =
      replay_stages(whole, std::move(programs), overlap_of(cluster));
  grid.parts = parts.of(predictions);
  for (std::size_t stage = 0; stage < grid.stages.size(); ++stage) {
    grid.stages[stage].prediction = std::move(predictions[stage]);
    const plan::Prediction& found = grid.stages[stage].prediction;
    if (stage == 0 || found.seconds > grid.seconds) {
      grid.issue_seconds = found.issue_seconds;
      grid.launch_seconds = found.launch_seconds;
    }
    grid.seconds = std::max(grid.seconds, found.seconds);
    if (grid.stages[stage].prediction.peak_bytes >
        grid.stages[grid.largest].prediction.peak_bytes) {
      grid.largest = stage;
    }
  }
  return grid;
}

bool replay_ranks(const Grid& grid, const std::function<plan::Program(int rank)>& program_of) {
  constexpr int most_ranks = 64;
  if (grid.ranks() > most_ranks) return false;
  std::vector<plan::Program> programs;
  for (int rank = 0; rank < grid.ranks(); ++rank) programs.push_back(program_of(rank));
  plan::replay_together(programs);
  return true;
}

bool plans_for_its_stage(const Grid& grid, int rank) {
  const Coordinates place = grid.coordinates_of(rank);
  return place.data == 0 && place.tensor == 0;
}

StageFloor floor_of_rank(const Setup& whole, int stage, std::int64_t budget_bytes,
                         std::int64_t kept_bytes, dist::Session& session) {
  StageFloor floor;
  session.agree([&] {
    if (!plans_for_its_stage(whole.grid, session.rank())) return;
    floor = plan_beside_libraries(kept_bytes, [&] {
      return floor_of_stage(whole, stage, budget_bytes, whole.config.memory.plan,
                            Effort::FirstThatFits);
    });
  });
  return floor;
}

Choice choose_together(const Setup& whole, int stage, const StageFloor& floor,
                       std::int64_t budget_bytes, Setup& setup, dist::Session& session) {
  const bool plans = plans_for_its_stage(whole.grid, session.rank());
  std::optional<Choice> choice;
  // Whether the model can be cut so, and the stage fits as far as this rank plans it.
  const auto choose = [&](Cut cut) {
    try {
      setup = setup_of_stage(whole, stage, cut);
    } catch (const ConfigError&) {
      if (cut == Cut::AsDeclared) throw;
      return false;
    }
    if (plans) choice = choose_or_not(setup, floor, budget_bytes, Effort::FirstThatFits, cut);
    return !plans || choice.has_value();
  };
  bool fits = false;
  session.agree([&] { fits = choose(Cut::BySeconds); });
  const auto all = session.all_reduce_max(std::vector<std::int64_t>{
      fits ? 0 : 1, plans && floor.bytes == 0 ? 1 : 0, plans ? floor.bytes : 0});
  const Cut cut = all[0] != 0 ? Cut::AsDeclared : Cut::BySeconds;
  if (cut == Cut::AsDeclared) session.agree([&] { choose(cut); });
  const std::string sent = sent_in_stage(whole.grid, stage, setup, choice, session);
  session.agree([&] {
    if (plans) return;
    if (sent.empty()) {
      choice = choose_or_not(setup, StageFloor(), budget_bytes, Effort::FirstThatFits, cut);
      expect(choice.has_value(), "what one rank of a stage keeps the others keep");
    } else {
      choice = choice_of_same_stage(setup, received(sent, setup), budget_bytes);
    }
  });
  choice->cut_as_declared = cut == Cut::AsDeclared;
  choice->minimum_budget_bytes = all[1] != 0 ? 0 : all[2];
  expect_same_programs(whole.grid, choice->program, session);
  return std::move(*choice);
}

namespace {

// "auto" is NCCL on GPUs, but where ranks share one, over which all of this is no harm.
bool may_use_nccl(const RunConfig& config) {
  if (config.grid.transport == "auto") return device_kind(config) == DeviceKind::Cuda;
  return config.grid.transport == "nccl";
}

// Programs of the stages of a pipeline, also such as were given. ReplayError.
void check_over_nccl(const plan::PipelinePlace& place, const std::vector<plan::Program>& stages) {
  for (const plan::Program& program : stages) {
    for (std::size_t i = 0; i < program.instructions.size(); ++i) {
      const plan::Instruction& instruction = program.instructions[i];
      if (instruction.operation != plan::Operation::Send || !instruction.channel) continue;
      const plan::Channel& channel = *instruction.channel;
      const auto is_its_own = [&](const plan::PipelinePlace::Lane& lane) {
        return place.group.at(static_cast<std::size_t>(lane.from)) == program.rank &&
               lane.to == channel.peer && lane.number == channel.tag % place.lane_numbers;
      };
      if (std::any_of(place.lanes.begin(), place.lanes.end(), is_its_own)) continue;
      throw plan::ReplayError(static_cast<int>(i), describe(instruction),
                              fmt::format("on rank {}: has a tag of no lane that values of this "
                                          "pipeline have; plan again",
                                          program.rank));
    }
  }
  plan::check_lanes(stages, place.lane_numbers);
  plan::check_launch_order(stages, place.lane_numbers);
}

}  // namespace

double seconds_of_step(const Setup& setup, const plan::Program& program, dist::Session& session) {
  if (setup.grid.shape().pipeline == 1) return program.seconds;
  const Coordinates place = setup.grid.coordinates_of(session.rank());
  const bool representative = place.data == 0 && place.tensor == 0;
  const auto texts = session.gather(
      representative ? plan::to_json(program, {session.rank()}, {}).dump() : std::string());
  double seconds = 0;
  session.agree([&] {
    if (session.rank() != 0) return;
    std::vector<plan::Program> stages;
    for (const auto& text : texts) {
      if (text.empty()) continue;
      stages.push_back(
          plan::program_from_json(nlohmann::json::parse(text), "the Program of a stage"));
    }
    if (may_use_nccl(setup.config)) check_over_nccl(setup.step.pipeline, stages);
    for (const auto& prediction : replay_stages(setup, std::move(stages), plan::Overlap{}))
      seconds = std::max(seconds, prediction.seconds);
  });
  return session.all_reduce_max(std::vector<double>{seconds})[0];
}

}  // namespace garonne::train
