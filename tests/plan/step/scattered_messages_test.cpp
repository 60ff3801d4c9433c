// What all tensor ranks have goes between stages in parts: one from each, gathered where it comes.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "plan/grid/grid_estimate.hpp"
#include "plan/program/launch_order.hpp"
#include "plan/program/proofs.hpp"
#include "plan/program/replay.hpp"
#include "plan/step/message_form.hpp"
#include "plan/step/tensor_graphs.hpp"
#include "plan/step/tensor_pipelines.hpp"

namespace garonne::plan {
namespace {

using test::tensor_ranks;
using test::TensorPipeline;

constexpr std::int64_t elements = 48;

TensorPipeline pipeline(MessageForm form, const std::string& schedule, int micro_batches = 6,
                        std::int64_t numbers = elements) {
  TensorPipeline grid = test::tensor_pipeline(test::schedule_named(schedule, 2, micro_batches),
                                              test::cut_blocks(7, numbers));
  for (StepShape& step : grid.steps) step.message_form = form;
  return grid;
}

std::vector<Program> ranks_of(const TensorPipeline& grid, const std::string& policy) {
  return test::of_all_ranks(grid, test::programs_of(grid, policy));
}

std::int64_t sent_bytes(const Program& program) {
  std::int64_t bytes = 0;
  for (const Instruction& instruction : program.instructions) {
    if (instruction.operation == Operation::Send) bytes += instruction.channel->bytes;
  }
  return bytes;
}

std::ptrdiff_t gathers(const Program& program) {
  return std::count_if(program.instructions.begin(), program.instructions.end(), gathers_message);
}

void expect_proved(const TensorPipeline& grid, const std::vector<Program>& all) {
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    EXPECT_NO_THROW(replay(all[rank]));
    EXPECT_NO_THROW(prove(all[rank], grid.graphs[rank / tensor_ranks]));
    // As `garonne check` has it, which knows no model.
    EXPECT_NO_THROW(prove(all[rank]));
  }
  EXPECT_NO_THROW(replay_together(all));
  EXPECT_NO_THROW(check_lanes(all, grid.lane_numbers));
  EXPECT_NO_THROW(check_launch_order(all, grid.lane_numbers));
}

TEST(ScatteredMessages, AreProvedAndMakeTheSameNumbers) {
  for (const std::string schedule :
       {"gpipe", "1f1b", "interleaved", "zb-h1", "zb-v", "dualpipev"}) {
    for (const std::string policy : {"keep-all", "full"}) {
      SCOPED_TRACE(schedule + ", " + policy);
      const TensorPipeline grid = pipeline(MessageForm::Scattered, schedule);
      const TensorPipeline plain = pipeline(MessageForm::Whole, schedule);
      const std::vector<Program> all = ranks_of(grid, policy);
      const std::vector<Program> whole = ranks_of(plain, policy);
      expect_proved(grid, all);
      const test::Outcome wanted = test::outcome_of(plain, whole, test::LaneTiming::Late);
      ASSERT_EQ(wanted.failed, "");
      EXPECT_FALSE(wanted.poisoned);
      for (const test::LaneTiming timing :
           {test::LaneTiming::Early, test::LaneTiming::Late, test::LaneTiming::Random}) {
        const test::Outcome outcome = test::outcome_of(grid, all, timing);
        EXPECT_EQ(outcome.failed, "");
        EXPECT_EQ(outcome, wanted);
      }
      for (std::size_t rank = 0; rank < all.size(); ++rank) {
        EXPECT_GT(gathers(all[rank]), 0);
        EXPECT_EQ(tensor_ranks * sent_bytes(all[rank]), sent_bytes(whole[rank]));
        EXPECT_EQ(replay(all[rank]).peak_bytes, replay(whole[rank]).peak_bytes);
      }
    }
  }
}

TEST(ScatteredMessages, GoWholeWhereTheyHaveNoEqualParts) {
  const TensorPipeline grid = pipeline(MessageForm::Scattered, "1f1b", 4, elements + 1);
  const TensorPipeline plain = pipeline(MessageForm::Whole, "1f1b", 4, elements + 1);
  for (std::size_t stage = 0; stage < 2; ++stage) {
    EXPECT_EQ(program_hash(test::program_of(grid, stage, "full")),
              program_hash(test::program_of(plain, stage, "full")));
  }
}

TEST(ScatteredMessages, GoWholeWhereRanksHaveDifferentValues) {
  TensorPipeline grid = pipeline(MessageForm::Scattered, "1f1b");
  for (ModelGraph& graph : grid.graphs) {
    for (ValueSpec& value : graph.values) value.replicated = false;
  }
  for (const Program& program : ranks_of(grid, "full")) EXPECT_EQ(gathers(program), 0);
}

struct Broken {
  std::string name;
  // Of one rank's Program; false where it has nothing to break.
  std::function<bool(Instruction&)> change;
};

// Each change of one instruction is refused by a proof or when the ranks meet.
TEST(ScatteredMessages, AreRefusedWhereTheyAreBroken) {
  const TensorPipeline grid = pipeline(MessageForm::Scattered, "1f1b");
  const std::vector<Program> all = ranks_of(grid, "keep-all");
  const std::vector<Broken> changes = {
      {"another rank's part",
       [](Instruction& one) {
         if (!is_part_of_message(one)) return false;
         one.arguments.part.offset = one.arguments.part.offset == 0 ? elements / 2 : 0;
         return true;
       }},
      {"fewer elements",
       [](Instruction& one) {
         if (!is_part_of_message(one)) return false;
         one.arguments.part.elements /= 2;
         return true;
       }},
      {"the whole of it",
       [](Instruction& one) {
         if (!is_part_of_message(one)) return false;
         one.arguments.part = {};
         return true;
       }},
      {"other bytes",
       [](Instruction& one) {
         if (!is_part_of_message(one)) return false;
         one.channel->bytes *= 2;
         return true;
       }},
      {"a gather of another value",
       [](Instruction& one) {
         if (!gathers_message(one)) return false;
         one.arguments.value = one.arguments.value == 0 ? 1 : 0;
         return !one.arguments.gradient;
       }},
      {"a gather over the pipeline",
       [](Instruction& one) {
         if (!gathers_message(one)) return false;
         one.channel->group = GroupAxis::Pipeline;
         return true;
       }},
      {"nothing in the place of a gather",
       [](Instruction& one) {
         if (!gathers_message(one)) return false;
         one.operation = Operation::Norm;
         one.reads = one.writes = one.arguments.inputs = {};
         one.arguments.output = -1;
         one.channel.reset();
         return true;
       }},
  };
  for (const Broken& broken : changes) {
    int tried = 0;
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      for (std::size_t i = 0; i < all[rank].instructions.size(); i += 3) {
        std::vector<Program> changed = all;
        if (!broken.change(changed[rank].instructions[i])) continue;
        ++tried;
        SCOPED_TRACE(broken.name + ": " + describe(all[rank].instructions[i]));
        EXPECT_THROW(
            {
              replay(changed[rank]);
              prove(changed[rank], grid.graphs[rank / tensor_ranks]);
              replay_together(changed);
            },
            ReplayError);
      }
    }
    EXPECT_GT(tried, 3) << broken.name;
  }
}

TEST(ScatteredMessages, OfValuesThatDifferAreRefused) {
  const TensorPipeline grid = pipeline(MessageForm::Scattered, "1f1b");
  const std::vector<Program> all = ranks_of(grid, "full");
  ModelGraph graph = grid.graphs[0];
  for (ValueSpec& value : graph.values) value.replicated = false;
  EXPECT_THROW(prove(all[0], graph), ReplayError);
}

TEST(MessageForm, IsScatteredWhereStagesLeaveTheNodesOfTensorGroups) {
  const auto decided = [](const GridShape& shape, int ranks_on_node) {
    return decided_message_form(MessageForm::Auto, shape, ranks_on_node);
  };
  EXPECT_EQ(decided({1, 2, 8}, 8), MessageForm::Scattered);
  EXPECT_EQ(decided({2, 2, 4}, 8), MessageForm::Scattered);
  EXPECT_EQ(decided({1, 2, 4}, 8), MessageForm::Whole) << "all on one node";
  EXPECT_EQ(decided({1, 2, 16}, 8), MessageForm::Whole) << "groups over nodes";
  EXPECT_EQ(decided({2, 2, 3}, 8), MessageForm::Whole) << "some groups over nodes";
  EXPECT_EQ(decided({8, 2, 1}, 8), MessageForm::Whole) << "no tensor ranks";
  for (const MessageForm form : {MessageForm::Whole, MessageForm::Scattered})
    EXPECT_EQ(decided_message_form(form, {1, 2, 2}, 8), form);
  EXPECT_EQ(message_form("auto"), MessageForm::Auto);
  EXPECT_EQ(message_form("whole"), MessageForm::Whole);
  EXPECT_EQ(message_form("scattered"), MessageForm::Scattered);
}

}  // namespace
}  // namespace garonne::plan
