// Which micro-batches a rank reads in which order, and what happens where others are asked for.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.hpp"
#include "train/workload/program_loads.hpp"
#include "train/workload/training_order.hpp"

namespace garonne::train {
namespace {

// So many samples and nothing in them.
class Numbers final : public Workload {
 public:
  const DataFacts& facts() const override { return facts_; }
  std::string summary() const override { return ""; }
  nlohmann::json manifest() const override { return {}; }
  dist::Facts contents() const override { return {}; }
  std::vector<ValidationSource> validation_sources() const override { return {}; }
  std::int64_t samples(Part) const override { return 60; }
  std::int64_t shuffle_block() const override { return 1; }
  std::string item() const override { return "samples"; }
  std::int64_t items_per_sample() const override { return 1; }
  std::string loss_unit() const override { return ""; }
  std::unique_ptr<BatchStream> open(std::shared_ptr<data::Reader>, Part,
                                    StreamOrder) const override {
    return nullptr;
  }

 private:
  DataFacts facts_;
};

// That loads these and does nothing with them.
plan::Program program_of(int micro_batches, const std::vector<int>& loads) {
  plan::Program program;
  program.micro_batches = micro_batches;
  for (const int micro_batch : loads) {
    plan::Instruction instruction;
    instruction.operation = plan::Operation::Load;
    instruction.micro_batch = micro_batch;
    program.instructions.push_back(instruction);
  }
  return program;
}

RunConfig small_run() {
  RunConfig config;
  config.train.global_batch = 6;
  config.train.micro_batch = 2;
  config.train.steps = 5;
  return config;
}

StreamOrder order_of(const plan::Program& program) {
  return training_order(small_run(), Numbers(), program, {}, 2);
}

TEST(TrainingOrder, MicroBatchesComeAsTheProgramLoadsThem) {
  const StreamOrder straight = order_of(program_of(3, {0, 1, 2}));
  const StreamOrder turned = order_of(program_of(3, {2, 0, 1}));
  EXPECT_EQ(turned.micro_batches, (std::vector<int>{2, 0, 1}));
  EXPECT_EQ(turned.first_ordinal, 3);
  EXPECT_EQ(turned.end_ordinal, 15);
  for (std::int64_t first = 3; first < 15; first += 3) {
    EXPECT_EQ(turned.samples_of(first), straight.samples_of(first + 2));
    EXPECT_EQ(turned.samples_of(first + 1), straight.samples_of(first));
    EXPECT_EQ(turned.samples_of(first + 2), straight.samples_of(first + 1));
    EXPECT_NE(turned.samples_of(first), straight.samples_of(first));
  }
}

TEST(TrainingOrder, EachMicroBatchIsLoadedOnce) {
  const auto says = [](const plan::Program& program, const std::string& words) {
    EXPECT_NE(fault_of_loads(program).find(words), std::string::npos) << fault_of_loads(program);
    EXPECT_THROW(order_of(program), InternalError);
  };
  EXPECT_EQ(fault_of_loads(program_of(3, {1, 2, 0})), "");
  says(program_of(3, {0, 2}), "micro-batch 1 0 times");
  says(program_of(3, {}), "micro-batch 0 0 times");
  says(program_of(3, {0, 1, 2, 1}), "micro-batch 1 2 times");
  says(program_of(3, {0, 1, 2, 3}), "loads 4 micro-batches where it has 3");
}

TEST(TrainingOrder, WantsWhatTheProgramLoads) {
  nn::Model model;
  for (const char* name : {"target", "hidden", "input", "mask"}) {
    model.graph.values.emplace_back().name = name;
  }
  const auto values_of = [&](std::vector<int> loaded) {
    plan::Program program = program_of(3, {0, 1, 2});
    for (const int value : loaded) {
      for (plan::Instruction& instruction : program.instructions)
        instruction.arguments.loaded.push_back({value, 0});
    }
    return training_order(small_run(), Numbers(), program, model, 1);
  };
  EXPECT_TRUE(values_of({}).values.empty());
  const StreamOrder order = values_of({2, 0});
  EXPECT_EQ(order.values, (std::vector<std::string>{"input", "target"}));
  EXPECT_TRUE(order.wants("input") && order.wants("target"));
  EXPECT_FALSE(order.wants("mask"));
}

// Micro-batches with one sample, their ordinal, from ordinal 4 on.
class Ordinals final : public BatchStream {
 public:
  using BatchStream::BatchStream;

 private:
  Numbered take() override {
    const std::int64_t ordinal = next_++;
    return {ordinal, {{ordinal}, {}, {}}};
  }
  std::int64_t next_ = 4;
};

TEST(BatchStream, GivesTheMicroBatchThatIsNamedOrSaysWhichItHas) {
  Ordinals stream({1, 0});
  EXPECT_EQ(stream.next(1).samples, std::vector<std::int64_t>{4});
  EXPECT_EQ(stream.next(0).samples, std::vector<std::int64_t>{5});
  EXPECT_EQ(stream.next(1).samples, std::vector<std::int64_t>{6});
  try {
    stream.next(1);
    ADD_FAILURE() << "no error";
  } catch (const InternalError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("micro-batch 1 was to be loaded"), std::string::npos) << text;
    EXPECT_NE(text.find("micro-batch 0 of step 4"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace garonne::train
