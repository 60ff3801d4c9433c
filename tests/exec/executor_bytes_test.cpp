// The executor, end to end on a small GPT: bytes.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "exec/gpt_rank.hpp"

namespace garonne::exec {
namespace {

std::vector<Setting> all_settings() {
  std::vector<Setting> settings;
  for (const Precision precision : precisions) {
    for (const int micro_batches : {1, 2, 4}) {
      for (const char* plan : {"keep-all", "full", "selective", "any 3"}) {
        Setting setting;
        setting.precision = precision;
        setting.micro_batches = micro_batches;
        setting.plan = plan;
        settings.push_back(setting);
        if (micro_batches != 2) continue;
        setting.attention_dropout = 0.2;
        settings.push_back(setting);
      }
    }
  }
  return settings;
}

// From the smallest budget to everything kept: the plan's bytes are the measured ones, and the bits
// those of plain training.
TEST(Executor, AnyBudgetGivesTheSameBitsWithinItsBytes) {
  for (const int micro_batches : {1, 3}) {
    Setting setting;
    setting.micro_batches = micro_batches;
    Rank keeping(setting);
    const StepOutputs kept = keeping.step();
    for (int twelfth = 0; twelfth < 12; ++twelfth) {
      setting.budget_share = twelfth / 11.0;
      SCOPED_TRACE("budget " + std::to_string(twelfth) + " of 11, micro-batches " +
                   std::to_string(micro_batches));
      Rank rank(setting, no_limit);
      const StepOutputs outputs = rank.step();
      EXPECT_EQ(outputs.loss, kept.loss);
      EXPECT_EQ(rank.gradients(), keeping.gradients());
      EXPECT_LE(rank.prediction().peak_bytes, rank.budget());
      EXPECT_LE(outputs.peak_bytes, rank.prediction().peak_bytes);
      EXPECT_GE(static_cast<double>(outputs.peak_bytes),
                0.99 * static_cast<double>(rank.prediction().peak_bytes));
    }
  }
}

TEST(Executor, BytesAreThePredictedOnes) {
  for (const auto& setting : all_settings()) {
    SCOPED_TRACE(setting.text());
    Rank rank(setting);
    EXPECT_EQ(rank.tier().live_bytes(), rank.prediction().static_bytes);
    for (std::int64_t step = 1; step <= 2; ++step) {
      const StepOutputs outputs = rank.step(step);
      expect_predicted_bytes(rank, outputs);
      for (const plan::Measurement& measurement : outputs.measurements)
        EXPECT_GE(measurement.seconds, 0);
    }
  }
}

TEST(Executor, BytesOfAnEvaluationToo) {
  for (const Precision precision : precisions) {
    Setting setting;
    setting.precision = precision;
    SCOPED_TRACE(setting.text());
    Rank rank(setting);
    const plan::Prediction predicted = rank.evaluation_prediction();
    const StepOutputs outputs = rank.evaluate();
    EXPECT_LE(outputs.peak_bytes, predicted.peak_bytes);
    EXPECT_GE(static_cast<double>(outputs.peak_bytes),
              0.99 * static_cast<double>(predicted.peak_bytes));
    for (std::size_t i = 0; i < outputs.measurements.size(); ++i) {
      EXPECT_EQ(outputs.measurements[i].live_bytes, predicted.live_bytes[i]);
    }
    EXPECT_EQ(rank.tier().live_bytes(), predicted.static_bytes);
    ASSERT_EQ(outputs.report.size(), 1U);
    // Untrained: about the logarithm of the vocabulary.
    EXPECT_NEAR(outputs.report[0], std::log(static_cast<double>(vocabulary)), 0.2);
    EXPECT_EQ(rank.evaluate().report, outputs.report) << "nothing is dropped";
  }
}

TEST(Executor, NothingIsLeftWhenEverythingIsGone) {
  Setting setting;
  setting.precision = Precision::BFloat16;
  auto rank = std::make_unique<Rank>(setting);
  rank->step();
  rank->state().buffers = {};
  EXPECT_EQ(rank->tier().live_bytes(), 0);
}

TEST(Executor, OneByteLessThanThePeakIsRefusedByName) {
  for (const char* plan : {"keep-all", "full"}) {
    for (const Precision precision : precisions) {
      Setting setting;
      setting.plan = plan;
      setting.precision = precision;
      SCOPED_TRACE(setting.text());
      std::int64_t peak = 0;
      std::string where;
      {
        Rank rank(setting);
        const StepOutputs outputs = rank.step();
        peak = outputs.peak_bytes;
        for (std::size_t i = 0; i < outputs.measurements.size() && where.empty(); ++i) {
          if (outputs.measurements[i].peak_bytes == peak)
            where = plan::describe(rank.program().instructions[i]);
        }
      }
      {
        Rank enough(setting, peak);
        EXPECT_NO_THROW(enough.step()) << "blocks that are kept must not stand in the way";
        EXPECT_NO_THROW(enough.step(2));
      }
      Rank short_of(setting, peak - 1);
      const at::Tensor before = short_of.state().parameter(0).trained().clone();
      try {
        short_of.step();
        ADD_FAILURE() << "not refused";
      } catch (const RefusedError& error) {
        EXPECT_NE(std::string(error.what()).find(where), std::string::npos)
            << error.what() << "; wanted " << where;
      }
      EXPECT_TRUE(at::equal(before, short_of.state().parameter(0).trained()))
          << "nothing was updated";
      EXPECT_EQ(short_of.tier().live_bytes(), short_of.prediction().static_bytes)
          << "what was made is gone";
    }
  }
}

TEST(Executor, SecondStepTakesNoNewBlocks) {
  Setting setting;
  Rank rank(setting);
  rank.step(1);
  // Addresses of the parameters stay: they are updated where they are.
  std::vector<const void*> addresses;
  for (std::size_t p = 0; p < rank.state().pieces.size(); ++p)
    addresses.push_back(rank.state().parameter(p).parameter.data_ptr());
  rank.step(2);
  for (std::size_t p = 0; p < addresses.size(); ++p) {
    EXPECT_EQ(rank.state().parameter(p).parameter.data_ptr(), addresses[p]);
  }
}

TEST(Executor, ABufferOfOtherBytesThanTheProgramSaysIsABug) {
  Setting setting;
  Rank rank(setting);
  for (auto& buffer : rank.program().buffers) {
    if (buffer.name == "layer.1.up#0") buffer.bytes += 64;
  }
  try {
    rank.step();
    ADD_FAILURE() << "not noticed";
  } catch (const InternalError& error) {
    EXPECT_NE(std::string(error.what()).find("layer.1.up#0"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace garonne::exec
