// Mutants of Programs: each proof is asked, and one of them at least must object.
#include "plan/program/content_check.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "plan/pipeline/pipeline_stage.hpp"
#include "plan/pipeline/schedule_registry.hpp"
#include "plan/program/implied_model.hpp"
#include "plan/program/model_check.hpp"
#include "plan/program/order_check.hpp"
#include "plan/program/program_mutants.hpp"
#include "plan/program/replay.hpp"
#include "plan/step/graphs.hpp"
#include "plan/step/tensor_graphs.hpp"

namespace garonne::plan::test {
namespace {

template <typename Check>
bool refuses(const Check& check) {
  try {
    check();
    return false;
  } catch (const ReplayError&) {
    return true;
  }
}

struct Objections {
  bool replay = false;
  bool order = false;
  bool model = false;
  bool contents = false;
  bool any() const { return replay || order || model || contents; }
};

Objections objections(const Program& program, const ModelGraph& graph) {
  Objections found;
  found.replay = refuses([&] { replay(program); });
  found.order = refuses([&] { check_order(program); });
  found.model = refuses([&] { check_against_model(program, graph); });
  // The contents of what is no Program of the model mean nothing.
  found.contents = found.model || refuses([&] { check_contents(program, graph); });
  return found;
}

struct WrongContent {
  ModelGraph graph;
  Program program;
};

std::vector<WrongContent> cases() {
  std::vector<WrongContent> made;
  for (unsigned seed = 1; seed <= 6; ++seed) {
    for (int zero = 0; zero <= 3; ++zero) {
      for (const char* policy : {"keep-all", "full"}) {
        WrongContent one;
        one.graph = random_graph(seed);
        StepShape step = step_shape(2, zero > 0 ? 2 : 1, 1000);
        step.zero = zero;
        one.program =
            make_training_program(one.graph, step, same_for_all(schedule_of(one.graph, policy), 2));
        made.push_back(std::move(one));
      }
    }
    // Of a tensor rank.
    for (const char* policy : {"keep-all", "full"}) {
      WrongContent one;
      one.graph = with_collectives(random_graph(seed), seed);
      one.program = make_training_program(one.graph, tensor_step_shape(2, 1, 1000),
                                          same_for_all(schedule_of(one.graph, policy), 2));
      made.push_back(std::move(one));
    }
  }
  return made;
}

TEST(Mutants, SwappedBuffersOfOneSizeAreFound) {
  int mutants = 0;
  int missed = 0;
  int by_replay = 0;
  int by_order = 0;
  int by_contents = 0;
  for (const WrongContent& one : cases()) {
    ASSERT_FALSE(objections(one.program, one.graph).any());
    std::mt19937 random(7);
    const auto buffers = static_cast<int>(one.program.buffers.size());
    const auto instructions = one.program.instructions.size();
    for (int attempt = 0; attempt < 2000; ++attempt) {
      const int a = static_cast<int>(random() % static_cast<unsigned>(buffers));
      const int b = static_cast<int>(random() % static_cast<unsigned>(buffers));
      const std::size_t i = random() % instructions;
      const auto& table = one.program.buffers;
      if (a == b || table[as_index(a)].bytes != table[as_index(b)].bytes) continue;
      Program mutant = one.program;
      if (!swap_buffers(mutant.instructions[i], a, b)) continue;
      if (says_the_same(mutant.instructions[i], one.program.instructions[i])) continue;
      ++mutants;
      const Objections found = objections(mutant, one.graph);
      by_replay += found.replay ? 1 : 0;
      by_order += found.order ? 1 : 0;
      by_contents += found.contents ? 1 : 0;
      if (found.any()) continue;
      ++missed;
      ADD_FAILURE() << describe(mutant.instructions[i]) << ": " << table[as_index(a)].name
                    << " and " << table[as_index(b)].name;
    }
  }
  EXPECT_GT(mutants, 300);
  EXPECT_EQ(missed, 0);
  // Each of the two finds some alone.
  EXPECT_GT(by_replay, mutants / 2);
  EXPECT_GT(by_contents, mutants / 2);
  std::printf("%d swaps: replay objects to %d, the order of lanes to %d, contents to %d\n", mutants,
              by_replay, by_order, by_contents);
}

// What liveness alone cannot see.
TEST(Mutants, WhatIsLiveAndWrongIsFound) {
  int other_batch = 0;
  int lost = 0;
  for (const WrongContent& one : cases()) {
    for (std::size_t i = 0; i < one.program.instructions.size(); ++i) {
      const Instruction& instruction = one.program.instructions[i];
      if (is_backward(instruction.operation)) {
        Program mutant = one.program;
        mutant.instructions[i].micro_batch = 1 - instruction.micro_batch;
        EXPECT_TRUE(objections(mutant, one.graph).contents) << describe(instruction);
        ++other_batch;
      }
      const auto& placements = instruction.arguments.placements;
      for (std::size_t k = 0; k < placements.size(); ++k) {
        if (placements[k] != Placement::AddExisting) continue;
        // The contribution that was there is lost.
        Program mutant = one.program;
        Arguments& arguments = mutant.instructions[i].arguments;
        arguments.placements[k] = Placement::Fresh;
        arguments.accumulated[k] = -1;
        EXPECT_TRUE(objections(mutant, one.graph).contents) << describe(instruction);
        ++lost;
      }
    }
  }
  EXPECT_GT(other_batch, 100);
  EXPECT_GT(lost, 10);
}

// A stage of two whose parameters have copies on the other one, or none.
std::optional<WrongContent> tied_stage(unsigned seed) {
  WrongContent one;
  StepShape step = step_shape(2, 1, 0);
  try {
    PipelineRequest request;
    request.stages = request.micro_batches = 2;
    PipelineStage cut =
        make_pipeline_stage(random_graph(seed), make_pipeline_schedule("1f1b", request), 0);
    step.pipeline = std::move(cut.place);
    step.pipeline.group = step.world_group = {0, 1};
    one.graph = std::move(cut.cut.graph);
  } catch (const ConfigError&) {
    return std::nullopt;
  }
  one.program =
      make_training_program(one.graph, step, same_for_all(schedule_of(one.graph, "full"), 2));
  return one;
}

// Copies of a parameter get one gradient, and other parameters their own.
TEST(Mutants, SumsOverCopiesAreOfWhatHasCopies) {
  int found = 0;
  for (unsigned seed = 1; seed <= 20; ++seed) {
    const std::optional<WrongContent> one = tied_stage(seed);
    if (!one) continue;
    ASSERT_FALSE(objections(one->program, one->graph).any());
    for (std::size_t i = 0; i < one->program.instructions.size(); ++i) {
      const Instruction& sum = one->program.instructions[i];
      if (sum.operation != Operation::AllReduce || sum.channel->group != GroupAxis::Tied) continue;
      for (const Bucket& bucket : one->program.buckets) {
        if (bucket.buffer == sum.arguments.inputs[0]) continue;
        Program mutant = one->program;
        swap_buffers(mutant.instructions[i], bucket.buffer, sum.arguments.inputs[0]);
        EXPECT_TRUE(objections(mutant, one->graph).contents) << describe(sum);
        ++found;
      }
    }
  }
  EXPECT_GT(found, 10);
}

// A shard that was updated is the others' only once it is gathered.
TEST(Mutants, WhatIsUpdatedIsGathered) {
  int found = 0;
  for (const WrongContent& one : cases()) {
    for (std::size_t i = 0; i < one.program.instructions.size(); ++i) {
      const Instruction& gather = one.program.instructions[i];
      if (gather.operation != Operation::AllGather || gather.arguments.exchanged >= 0 ||
          gather.arguments.output != gather.arguments.inputs[0])
        continue;
      for (const Bucket& bucket : one.program.buckets) {
        if (bucket.shard.parameter == gather.arguments.output) continue;
        Program mutant = one.program;
        swap_buffers(mutant.instructions[i], bucket.shard.parameter, gather.arguments.output);
        EXPECT_TRUE(objections(mutant, one.graph).contents) << describe(gather);
        ++found;
      }
    }
  }
  EXPECT_GT(found, 10);
}

// All ranks sum the loss and the squares, and nothing else.
TEST(Mutants, WhatAllRanksSumAreTheSumsOfTheStep) {
  int found = 0;
  for (const WrongContent& one : cases()) {
    for (std::size_t i = 0; i < one.program.instructions.size(); ++i) {
      const Instruction& sum = one.program.instructions[i];
      if (sum.operation != Operation::AllReduce || sum.channel->group != GroupAxis::World) continue;
      for (const Bucket& bucket : one.program.buckets) {
        const int gradient = bucket.shard.gradient >= 0 ? bucket.shard.gradient : bucket.buffer;
        Program mutant = one.program;
        swap_buffers(mutant.instructions[i], gradient, sum.arguments.inputs[0]);
        EXPECT_TRUE(objections(mutant, one.graph).replay) << describe(sum);
        ++found;
      }
    }
  }
  EXPECT_GT(found, 10);
}

// Every number in a tree of JSON.
void numbers_of(nlohmann::json& json, std::vector<nlohmann::json*>& found) {
  if (json.is_number_integer()) found.push_back(&json);
  if (!json.is_structured()) return;
  for (auto& item : json) numbers_of(item, found);
}

// As a file would be read: what is not refused by its reader must not harm the proofs, whatever its
// numbers are.
TEST(Mutants, AnyNumberOfAFileIsRefusedOrRead) {
  std::mt19937 random(11);
  int read = 0;
  int refused = 0;
  for (const WrongContent& one : cases()) {
    auto json = nlohmann::json::parse(to_json(one.program, {0}, {}).dump());
    std::vector<nlohmann::json*> numbers;
    numbers_of(json, numbers);
    for (int attempt = 0; attempt < 60; ++attempt) {
      nlohmann::json& number = *numbers[random() % numbers.size()];
      const std::int64_t before = number.get<std::int64_t>();
      const std::int64_t values[] = {-1,
                                     0,
                                     before + 1,
                                     before - 1,
                                     before * 2,
                                     INT32_MAX,
                                     std::int64_t{1} << 47,
                                     static_cast<int>(random() % 200)};
      number = values[random() % std::size(values)];
      Program program;
      try {
        program = program_from_json(json, "p.json");
      } catch (const ConfigError&) {
        ++refused;
        number = before;
        continue;
      }
      number = before;
      ++read;
      // In the order in which a run asks them.
      refused += refuses([&] {
        replay(program);
        check_order(program);
        check_against_model(program, one.graph);
        check_contents(program, one.graph);
      })
                     ? 1
                     : 0;
      refuses([&] {
        replay(program);
        const ModelGraph implied = implied_model(program);
        check_against_model(program, implied);
        check_contents(program, implied);
      });
    }
  }
  EXPECT_GT(read, 1000);
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace garonne::plan::test
