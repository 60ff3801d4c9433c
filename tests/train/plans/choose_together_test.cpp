// One rank of a stage plans for all of them.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "base/error.hpp"
#include "dist/session.hpp"
#include "plan/program/program.hpp"
#include "train/plans/grid_plan.hpp"

namespace garonne::train::test {
namespace {

Setup setup_of(const RunConfig& config, int rank) {
  return make_setup(config, {65, {}, {}}, 2, rank);
}

// As if this rank had measured other seconds than the first: its own plan would be another one.
void measure_otherwise(int rank, Setup& setup) {
  plan::CostTable costs;
  for (const auto& node : setup.model.graph.nodes) {
    plan::CostRow& row = costs.rows[node.cost_key];
    const bool slow = rank > 0 && node.kind == (rank % 2 == 0 ? "linear" : "attention");
    row.forward_seconds = row.forward_keep_seconds = row.backward_seconds =
        row.backward_weight_seconds = slow ? 1 : 1e-6;
  }
  apply_costs(costs, setup);
}

TEST(ChooseTogether, TheFirstRankOfAStageDecides) {
  dist::Session session = dist::Session::start();
  RunConfig config;
  config.model.layers = 3;
  config.model.hidden = 32;
  config.model.sequence = 64;
  config.evaluation.batches = 2;
  config.train.global_batch = 8;
  config.train.micro_batch = 2;
  config.grid.data = session.size();
  const int rank = session.rank();
  for (const int zero : {0, 3}) {
    config.grid.zero = zero;
    train::Setup whole = setup_of(config, rank);
    const std::int64_t least = smallest_budget(whole);
    measure_otherwise(rank, whole);
    for (const std::string wanted : {"auto", "greedy", "periodic", "keep-all"}) {
      SCOPED_TRACE(std::to_string(zero) + " " + wanted);
      whole.config.memory.plan = wanted;
      const bool keeps = wanted == "keep-all";
      const std::int64_t budget = keeps ? std::int64_t{1} << 40 : least + least / 4;
      StageFloor floor;
      if (plans_for_its_stage(whole.grid, rank))
        floor = floor_of_stage(whole, 0, budget, wanted, Effort::FirstThatFits);
      train::Setup setup;
      const Choice choice = choose_together(whole, 0, floor, budget, setup, session);
      EXPECT_LE(choice.program.peak_bytes, budget);
      EXPECT_LE(choice.evaluation.peak_bytes, budget);
      EXPECT_FALSE(choice.evaluation.instructions.empty());
      EXPECT_EQ(choice.prediction.peak_bytes, choice.program.peak_bytes);
      EXPECT_TRUE(session.all_agree(plan::program_hash(choice.program) + choice.program.name +
                                    std::to_string(choice.program.seconds) +
                                    std::to_string(choice.minimum_budget_bytes)));
    }
  }
  // What nobody can do is said by all.
  train::Setup whole = setup_of(config, rank);
  try {
    session.agree([&] {
      if (plans_for_its_stage(whole.grid, rank))
        floor_of_stage(whole, 0, 1000, "auto", Effort::FirstThatFits);
    });
    ADD_FAILURE() << "a thousand bytes are not enough";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::Infeasible);
  }
}

}  // namespace
}  // namespace garonne::train::test
