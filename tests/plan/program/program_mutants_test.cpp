// The proofs judged by the interpreter: mutants of Programs that come to something else must be
// refused.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "plan/offload/gradient_offload.hpp"
#include "plan/offload/host_update.hpp"
#include "plan/offload/paging.hpp"
#include "plan/offload/random_offloads.hpp"
#include "plan/offload/rotated_updates.hpp"
#include "plan/offload/state_offload.hpp"
#include "plan/offload/weight_offload.hpp"
#include "plan/pipeline/pipeline_stage.hpp"
#include "plan/pipeline/schedule_registry.hpp"
#include "plan/program/content_check.hpp"
#include "plan/program/exchange_lane.hpp"
#include "plan/program/implied_model.hpp"
#include "plan/program/model_check.hpp"
#include "plan/program/order_check.hpp"
#include "plan/program/program_interpreter.hpp"
#include "plan/program/program_mutants.hpp"
#include "plan/program/rank_sums_check.hpp"
#include "plan/program/replay.hpp"
#include "plan/program/rotated_step.hpp"
#include "plan/program/steps_in_a_row.hpp"
#include "plan/step/graphs.hpp"
#include "plan/step/rank_program.hpp"
#include "plan/step/tensor_graphs.hpp"

namespace garonne::plan::test {
namespace {

// A step of all ranks: rank = (data rank x stages + stage) x tensor ranks + tensor rank.
struct Step {
  std::string name;
  std::string schedule;  // none of a single stage
  int stages = 1;
  int data = 1;
  int tensor = 1;
  std::vector<ModelGraph> graphs;  // by stage
  std::vector<Program> programs;   // by rank
  bool is_rotated = false;         // some of them

  int rank_of(int data_rank, int stage, int tensor_rank) const {
    return (data_rank * stages + stage) * tensor + tensor_rank;
  }
  GridShape shape() const { return {data, stages, tensor}; }
  int stage_of(int rank) const { return rank / tensor % stages; }
  // Of rotated ones two steps in a row, in which one follows another.
  std::vector<Program> carried_out(std::vector<Program> of) const {
    if (!is_rotated) return of;
    for (Program& program : of) program = in_a_row(program, 2);
    return of;
  }
  std::vector<RankProgram> ranks(const std::vector<Program>& of) const {
    std::vector<RankProgram> all;
    for (std::size_t r = 0; r < of.size(); ++r)
      all.push_back({&graphs[as_index(stage_of(static_cast<int>(r)))], &of[r]});
    return all;
  }
};

StepShape random_shape(std::mt19937& random, int data) {
  const auto up_to = [&](unsigned most) { return static_cast<int>(random() % (most + 1)); };
  StepShape shape;
  shape.micro_batches = 1 + up_to(2);
  shape.zero = data > 1 ? up_to(3) : 0;
  shape.bucket_bytes = std::array{0, 1000, 3000, 1 << 20}[static_cast<std::size_t>(up_to(3))];
  shape.reduction_bytes = {1000 * up_to(1), 1000 * up_to(3), 3000};
  shape.messages_first = up_to(3) > 0;
  shape.gathers_ahead = up_to(2);
  shape.optimizer_states = {{.name = "first_moment"}, {.name = "second_moment"}};
  if (up_to(1) == 1) shape.element_bytes = {2, 4, 4, 4};
  return shape;
}

// Some parameters and gradients below, with as little room as can be.
Program with_pages_below(Program program, std::mt19937& random) {
  program = with_divided_squares(std::move(program));
  std::vector<int> pages = movable_weights(program, 0);
  const std::vector<int> gradients = movable_gradients(program, 0);
  pages.insert(pages.end(), gradients.begin(), gradients.end());
  std::erase_if(pages, [&](int) { return random() % 2 == 0; });
  std::vector<std::int64_t> bytes = replay(program).during_bytes;
  const std::vector<std::int64_t> idle = idle_bytes(program, pages);
  for (std::size_t place = 0; place < idle.size(); ++place) bytes[place] -= idle[place];
  const std::int64_t least = *std::max_element(bytes.begin(), bytes.end());
  return with_paging(std::move(program), pages, Tier::Disk, {}, least).value();
}

constexpr std::array<const char*, 7> schedules_met = {"",     "1f1b",    "interleaved", "zb-h1",
                                                      "zb-v", "chimera", "dualpipev"};

// Most pipelines over tensor ranks have messages in parts.
bool scatters(const Step& step, unsigned seed) {
  return step.tensor > 1 && step.stages > 1 && seed % 9 != 1;
}

ModelGraph random_model(unsigned seed, const Step& step) {
  if (scatters(step, seed)) return cut_blocks(4 + static_cast<int>(seed % 4), 48);
  ModelGraph whole = random_graph(seed);
  if (step.tensor == 1) return whole;
  whole = with_collectives(whole, seed);
  // Some gradients are sums over both groups.
  for (std::size_t p = seed % 2; p < whole.parameters.size(); p += 2)
    whole.parameters[p].sums_over_tensor = true;
  return whole;
}

std::optional<PipelineSchedule> random_schedule(std::mt19937& random, const Step& step,
                                                StepShape& shape) {
  if (step.stages == 1) return std::nullopt;
  shape.micro_batches = step.stages * (1 + static_cast<int>(random() % 2));
  PipelineRequest request;
  request.stages = step.stages;
  request.micro_batches = shape.micro_batches;
  return make_pipeline_schedule(step.schedule, request);
}

// `tied`: the stages with copies of tied parameters.
RankPlace place_in(const Step& step, const Coordinates& at, const std::vector<int>& tied) {
  RankPlace place;
  place.rank = step.rank_of(at.data, at.pipeline, at.tensor);
  place.coordinates = at;
  for (int other = 0; other < step.data; ++other)
    place.data_group.push_back(step.rank_of(other, at.pipeline, at.tensor));
  for (int other = 0; other < step.tensor; ++other)
    place.tensor_group.push_back(step.rank_of(at.data, at.pipeline, other));
  for (int other = 0; other < step.stages; ++other)
    place.pipeline_group.push_back(step.rank_of(at.data, other, at.tensor));
  for (const int other : tied) place.tied_group.push_back(step.rank_of(at.data, other, at.tensor));
  return place;
}

Program with_half_the_states_below(Program program, unsigned seed) {
  std::vector<StateGroup> groups = state_groups(program, 0);
  groups.resize((groups.size() + 1) / 2);
  const std::int64_t budget = replay(program).peak_bytes;
  if (seed % 8 < 6) return with_states_below(program, groups, Tier::Disk, {}, budget).value();
  return with_updates_on_host(
      std::move(program), groups, {}, 1e9,
      seed % 16 >= 8 ? GradientCopies::WhenComplete : GradientCopies::AtTheEnd);
}

// Of most seeds something is on tiers below the device.
Program with_some_below(Program program, unsigned seed, std::mt19937& random) {
  if (seed % 2 == 0) {
    const auto offloads = random_offloads(program, random, 8, {Tier::Host, Tier::Disk});
    program = with_offloads(std::move(program), offloads, {{Tier::Host, {}}, {Tier::Disk, {}}});
  }
  if (seed % 4 >= 2) program = with_half_the_states_below(std::move(program), seed);
  if (seed % 3 != 0) program = with_pages_below(std::move(program), random);
  if (seed / 16 % 2 == 0) {
    if (auto rotated = with_rotated_updates(program)) return std::move(*rotated);
  }
  return program;
}

// `policy` chooses among those of the stage.
void add_stage(Step& step, int stage, StepShape shape, ModelGraph graph, std::size_t policy,
               const std::optional<PipelineSchedule>& schedule, unsigned seed,
               std::mt19937& random) {
  if (schedule) {
    PipelineStage cut = make_pipeline_stage(graph, *schedule, stage);
    shape.pipeline = std::move(cut.place);
    graph = std::move(cut.cut.graph);
  }
  const std::vector<int> tied = shape.pipeline.tied_group;
  const RankPlace first = place_in(step, {0, stage, 0}, tied);
  shape.data_group = first.data_group;
  shape.tensor_group = first.tensor_group;
  if (schedule) shape.pipeline.group = first.pipeline_group;
  const auto all = policy_schedules(graph);
  const Program program = with_some_below(
      make_training_program(graph, shape,
                            same_for_all(all[policy % all.size()].second, shape.micro_batches)),
      seed, random);
  for (int rank = 0; rank < static_cast<int>(step.programs.size()); ++rank) {
    if (step.stage_of(rank) != stage) continue;
    const Coordinates at = {rank / step.tensor / step.stages, stage, rank % step.tensor};
    step.programs[as_index(rank)] =
        with_sums_in_a_row(program_of_rank(program, graph, place_in(step, at, tied)));
    step.is_rotated = step.is_rotated || is_rotated(program);
  }
  step.graphs.push_back(std::move(graph));
}

// Nothing where the model is too small for its pipeline.
std::optional<Step> random_step(unsigned seed) {
  std::mt19937 random(seed * 7919);
  Step step;
  step.schedule = schedules_met[seed % schedules_met.size()];
  step.stages = step.schedule.empty() ? 1 : 2 + static_cast<int>(random() % 2);
  step.data = 1 + static_cast<int>(random() % 3 > 0);
  StepShape shape = random_shape(random, step.data);
  step.tensor = seed % 3 == 1 ? 2 : 1;
  for (int rank = 0; rank < step.data * step.stages * step.tensor; ++rank)
    shape.world_group.push_back(rank);
  const ModelGraph whole = random_model(seed, step);
  if (scatters(step, seed)) shape.message_form = MessageForm::Scattered;
  try {
    const auto schedule = random_schedule(random, step, shape);
    step.programs.resize(shape.world_group.size());
    const auto policy = static_cast<std::size_t>(random());
    for (int stage = 0; stage < step.stages; ++stage)
      add_stage(step, stage, shape, whole, policy, schedule, seed, random);
  } catch (const ConfigError&) {
    return std::nullopt;
  }
  step.name = fmt::format(
      "seed {}, {} data ranks, {} tensor ranks, ZeRO {}, {} stages {}, "
      "{} micro-batches{}{}{}",
      seed, step.data, step.tensor, shape.zero, step.stages, step.schedule, shape.micro_batches,
      shape.element_bytes.master > 0 ? ", bfloat16" : "",
      scatters(step, seed) ? ", messages in parts" : "",
      step.is_rotated ? ", updates beside the next step" : "");
  return step;
}

// Who refuses first, in the order in which a run asks.
enum class Verdict { Replay, Order, Model, Contents, CollectivePhases, Accepted };
constexpr int verdicts = 6;

// Against `graph`, or against the model that the Program itself implies.
Verdict verdict_on(const Step& step, const std::vector<Program>& programs, int rank,
                   const ModelGraph* graph) {
  const Program& program = programs[as_index(rank)];
  Verdict verdict = Verdict::Replay;
  try {
    replay(program);
    verdict = Verdict::Order;
    check_order(program);
    const Program whole = as_whole_step(program);
    check_order(whole);
    verdict = Verdict::Model;
    const ModelGraph model = graph == nullptr ? implied_model(whole) : *graph;
    check_against_model(whole, model);
    verdict = Verdict::Contents;
    check_contents(whole, model);
    verdict = Verdict::CollectivePhases;
    check_rank_sums(program, step.shape());
    replay_together(programs);
    check_trained_together(programs);
  } catch (const ReplayError&) {
    return verdict;
  }
  return Verdict::Accepted;
}

bool matters(const Step& step, const std::vector<Program>& programs, const Outcome& wanted,
             unsigned seed) {
  const std::vector<Program> carried_out = step.carried_out(programs);
  const auto ranks = step.ranks(carried_out);
  const auto last = static_cast<unsigned>(ranks.size()) - 1;
  return !(interpret(ranks, LaneTiming::Late) == wanted) ||
         (last > 0 && !(interpret(ranks, LaneTiming::Late, last) == wanted)) ||
         !(interpret(ranks, LaneTiming::Early) == wanted) ||
         !(interpret(ranks, LaneTiming::Random, seed) == wanted) ||
         !(interpret(ranks, LaneTiming::Random, seed + 1) == wanted);
}

struct Counts {
  std::array<int, verdicts> that_matter{};
  int missed_without_model = 0;  // of them
  int equivalent = 0;
  int refused_equivalents = 0;
};
using Table = std::array<Counts, mutant_kinds>;

int sum(const Counts& counts) {
  int all = 0;
  for (const int count : counts.that_matter) all += count;
  return all;
}

void print(const Table& table) {
  std::printf("%-22s %8s %8s %8s %8s %8s %8s %8s %14s %10s %8s\n", "mutants", "matter", "replay",
              "order", "model", "contents", "together", "missed", "(model unknown)", "equivalent",
              "refused");
  for (int kind = 0; kind < mutant_kinds; ++kind) {
    const Counts& counts = table[as_index(kind)];
    std::printf("%-22s %8d", std::string(to_string(static_cast<MutantKind>(kind))).c_str(),
                sum(counts));
    for (const int count : counts.that_matter) std::printf(" %8d", count);
    std::printf(" %14d %10d %8d\n", counts.missed_without_model, counts.equivalent,
                counts.refused_equivalents);
  }
}

Outcome outcome_of(const Step& step) {
  const std::vector<Program> carried_out = step.carried_out(step.programs);
  return interpret(step.ranks(carried_out), LaneTiming::Late);
}

// Of a Program all mutants, or every `stride`th and all without an `after`.
void judge(const Step& step, unsigned seed, std::size_t stride, int swaps, Table& table) {
  const Outcome wanted = outcome_of(step);
  std::mt19937 random(seed);
  for (int stage = 0; stage < step.stages; ++stage) {
    const int first = step.rank_of(0, stage, 0);
    const Program& program = step.programs[as_index(first)];
    std::vector<Mutation> mutations;
    const std::vector<Mutation> singles = single_mutations(program);
    for (std::size_t k = 0, chosen = random() % stride; k < singles.size(); ++k) {
      if (k % stride == chosen || singles[k].kind == MutantKind::AfterDeleted)
        mutations.push_back(singles[k]);
    }
    for (const Mutation& swap : random_swaps(program, swaps, random)) mutations.push_back(swap);
    for (const Mutation& move : random_moves(program, swaps, random)) mutations.push_back(move);
    for (const Mutation& mutation : mutations) {
      // The ranks of a stage run one Program.
      std::vector<Program> programs = step.programs;
      for (int rank = 0; rank < static_cast<int>(programs.size()); ++rank) {
        if (step.stage_of(rank) == stage) mutate(programs[as_index(rank)], mutation);
      }
      const Verdict verdict = verdict_on(step, programs, first, &step.graphs[as_index(stage)]);
      Counts& counts = table[static_cast<std::size_t>(mutation.kind)];
      if (matters(step, programs, wanted, seed)) {
        ++counts.that_matter[static_cast<std::size_t>(verdict)];
        if (verdict == Verdict::Accepted ||
            (verdict != Verdict::Replay && verdict != Verdict::Order &&
             verdict_on(step, programs, first, nullptr) == Verdict::Accepted))
          ++counts.missed_without_model;
        if (verdict == Verdict::Accepted)
          std::printf("missed: %s: %s\n", step.name.c_str(), describe(program, mutation).c_str());
      } else {
        ++counts.equivalent;
        counts.refused_equivalents += verdict == Verdict::Accepted ? 0 : 1;
      }
    }
  }
}

int steps_asked_for() {
  const char* const given = std::getenv("GARONNE_RANDOM_MUTANTS");
  return given == nullptr ? 0 : std::atoi(given);
}

// Every mutant counts that does not come to what the Program comes to, however lanes run.
TEST(JudgedMutants, WhatComesToSomethingElseIsRefused) {
  const int asked = steps_asked_for();
  const bool all = asked > 0;
  Table table{};
  int judged = 0;
  for (unsigned seed = 1; judged < (all ? asked : 15); ++seed) {
    const std::optional<Step> step = random_step(seed);
    if (!step) continue;
    SCOPED_TRACE(step->name);
    judge(*step, seed, all ? 1 : 16, all ? 200 : 20, table);
    ++judged;
  }
  print(table);
  int matter = 0;
  int missed = 0;
  for (const Counts& counts : table) {
    matter += sum(counts);
    missed += counts.that_matter[static_cast<std::size_t>(Verdict::Accepted)];
  }
  std::printf("%d Programs of ranks: %d mutants matter, %d are missed\n", judged, matter, missed);
  EXPECT_GT(matter, 100 * judged / 4);
  EXPECT_LE(100 * missed, matter);
  const Counts& afters = table[static_cast<std::size_t>(MutantKind::AfterDeleted)];
  EXPECT_GT(sum(afters), 0);
  EXPECT_EQ(afters.that_matter[static_cast<std::size_t>(Verdict::Accepted)], 0);
}

// Nothing that is made is refused, with the model or without.
TEST(JudgedMutants, WhatIsNoMutantIsAccepted) {
  for (unsigned seed = 1; seed <= 60; ++seed) {
    const std::optional<Step> step = random_step(seed);
    if (!step) continue;
    for (int stage = 0; stage < step->stages; ++stage) {
      const int first = step->rank_of(0, stage, 0);
      EXPECT_EQ(verdict_on(*step, step->programs, first, &step->graphs[as_index(stage)]),
                Verdict::Accepted)
          << step->name;
      EXPECT_EQ(verdict_on(*step, step->programs, first, nullptr), Verdict::Accepted) << step->name;
    }
  }
}

// What the interpreter must be for its judgement to be worth anything.
TEST(ProgramInterpreter, TheSameStepComesOutHoweverLanesRun) {
  std::set<std::string> schedules;
  int divided = 0;
  int rotated = 0;
  std::ptrdiff_t gathers = 0;
  for (unsigned seed = 1; seed <= 60; ++seed) {
    const std::optional<Step> step = random_step(seed);
    if (!step) continue;
    SCOPED_TRACE(step->name);
    const std::vector<Program> carried_out = step->carried_out(step->programs);
    const auto ranks = step->ranks(carried_out);
    const Outcome late = interpret(ranks, LaneTiming::Late);
    ASSERT_EQ(late.failed, "");
    EXPECT_FALSE(late.poisoned);
    const auto last = static_cast<unsigned>(ranks.size()) - 1;
    std::vector<Outcome> others = {interpret(ranks, LaneTiming::Early),
                                   interpret(ranks, LaneTiming::Late, last)};
    for (unsigned lot = 0; lot < 3; ++lot)
      others.push_back(interpret(ranks, LaneTiming::Random, lot));
    for (const Outcome& other : others) {
      EXPECT_EQ(other.failed, "");
      EXPECT_EQ(other.contents, late.contents);
    }
    schedules.insert(step->schedule);
    divided += step->tensor > 1 ? 1 : 0;
    rotated += step->is_rotated ? 1 : 0;
    for (const Program& program : step->programs) {
      gathers +=
          std::count_if(program.instructions.begin(), program.instructions.end(), gathers_message);
    }
  }
  EXPECT_EQ(schedules.size(), schedules_met.size()) << "each schedule there is";
  EXPECT_GT(divided, 5);
  EXPECT_GT(rotated, 3);
  EXPECT_GT(gathers, 100);
}

}  // namespace
}  // namespace garonne::plan::test
