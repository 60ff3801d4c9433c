// A small GPT cut over the tensor axis, beside the same model on one rank: losses, gradients,
// bytes. In float64 with dropout, vocabularies that do not divide among them.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "device/cpu_device.hpp"
#include "device/emulated_device.hpp"
#include "exec/exchange_device.hpp"
#include "exec/tensor_ranks.hpp"
#include "exec/token_batch.hpp"
#include "nn/gpt/gpt.hpp"
#include "plan/program/exchange_lane.hpp"
#include "plan/program/pass_parts.hpp"

namespace garonne::exec {
namespace {

struct Setting {
  Precision precision = Precision::Float64;
  bool sequence_parallel = false;
  std::string plan = "keep-all";
  std::int64_t vocabulary = 61;
  double dropout = 0.2;
  double attention_dropout = 0;
  // What puts collectives of nodes beside compute; on a device whose lanes are late, or on the CPU.
  plan::Program (*beside_compute)(plan::Program) = nullptr;
  bool late = true;
  bool sums_again = false;
  bool compute_wire = true;

  CutModel cut() const {
    constexpr std::int64_t batch = 2;
    const nn::GptSizes sizes{2, 32, 4, 24, vocabulary, dropout, attention_dropout};
    CutModel cut;
    cut.name = sequence_parallel ? "sequence parallel" : "tensor parallel";
    cut.make = [sizes, parallel = sequence_parallel, wire = compute_wire](
                   const nn::Declaration& declaration, int member, int ranks) {
      nn::GptPart part;
      part.tensor = member;
      part.tensor_ranks = ranks;
      part.sequence_parallel = parallel && ranks > 1;
      part.compute_wire = wire;
      return nn::make_gpt(sizes, batch, declaration, part);
    };
    cut.load = [sizes](const nn::Model&, std::int64_t number) {
      return token_batch(number * batch, batch, sizes.sequence, sizes.vocabulary);
    };
    cut.precision = precision;
    cut.plan = plan;
    cut.beside_compute = beside_compute;
    cut.sums_again = sums_again;
    const bool holds_back = late && beside_compute != nullptr;
    cut.device = [holds_back](int member) -> std::unique_ptr<device::Device> {
      std::unique_ptr<device::Device> carrier = std::make_unique<device::CpuDevice>();
      if (holds_back) {
        carrier = std::make_unique<device::EmulatedDevice>(device::EmulatedSettings{
            .delay_seed = 17 + member, .longest_hold_seconds = 0.02, .compute_thread = true});
      }
      return std::make_unique<ExchangeDevice>(std::move(carrier));
    };
    return cut;
  }
};

class TensorAxis : public TensorRanks {
 protected:
  void compare(const Setting& setting) { TensorRanks::compare(setting.cut(), 0); }

  // Steps of a rank with collectives of nodes beside compute and without. Returns the former.
  std::unique_ptr<TensorRank> expect_same_bits(Setting setting) {
    SCOPED_TRACE(precision_name(setting.precision));
    auto beside = std::make_unique<TensorRank>(setting.cut(), session_, transport_.get());
    setting.beside_compute = nullptr;
    TensorRank blocking(setting.cut(), session_, transport_.get());
    for (std::int64_t number = 1; number <= 3; ++number) {
      const StepOutputs wanted = blocking.step(number);
      const StepOutputs found = beside->step(number);
      EXPECT_EQ(found.loss, wanted.loss);
      EXPECT_EQ(found.gradient_norm, wanted.gradient_norm);
      EXPECT_EQ(found.peak_bytes, wanted.peak_bytes);
    }
    for (std::size_t p = 0; p < beside->state().pieces.size(); ++p) {
      EXPECT_TRUE(at::equal(beside->state().parameter(p).trained(),
                            blocking.state().parameter(p).trained()));
    }
    return beside;
  }
};

TEST_F(TensorAxis, TrainsAsOneRankDoes) {
  for (const bool sequence_parallel : {false, true}) {
    for (const char* plan : {"keep-all", "full", "selective"})
      compare({Precision::Float64, sequence_parallel, plan});
  }
}

TEST_F(TensorAxis, VocabularyWithoutARowForTheLastRank) {
  for (const bool sequence_parallel : {false, true})
    compare({Precision::Float64, sequence_parallel, "keep-all", session_.size() + 1});
}

TEST_F(TensorAxis, WithoutDropout) {
  for (const bool sequence_parallel : {false, true})
    compare({Precision::Float64, sequence_parallel, "keep-all", 64, 0});
}

TEST_F(TensorAxis, WithDropoutOfAttention) {
  for (const bool sequence_parallel : {false, true}) {
    for (const char* plan : {"keep-all", "full"})
      compare({Precision::Float64, sequence_parallel, plan, 61, 0.2, 0.3});
  }
}

TEST_F(TensorAxis, OtherPrecisions) {
  for (const Precision precision : {Precision::Float32, Precision::BFloat16}) {
    for (const bool sequence_parallel : {false, true}) {
      compare_loosely(Setting{precision, sequence_parallel}.cut(),
                      precision == Precision::Float32 ? 2.4e-5 : 7e-3);
    }
  }
}

// Of what is rounded to bfloat16 already, added in float32 and rounded once: in half the bytes.
TEST_F(TensorAxis, SumsTravelInBFloat16WithTheBitsOfFloat32) {
  for (const bool sequence_parallel : {false, true}) {
    for (const char* plan : {"keep-all", "full"}) {
      Setting setting{Precision::BFloat16, sequence_parallel, plan};
      TensorRank narrow(setting.cut(), session_, transport_.get());
      setting.compute_wire = false;
      TensorRank wide(setting.cut(), session_, transport_.get());
      EXPECT_LE(narrow.prediction().peak_bytes, wide.prediction().peak_bytes);
      std::int64_t narrow_bytes = 0;
      std::int64_t wide_bytes = 0;
      const auto& instructions = narrow.program().instructions;
      ASSERT_EQ(instructions.size(), wide.program().instructions.size());
      for (std::size_t i = 0; i < instructions.size(); ++i) {
        if (!instructions[i].channel || !instructions[i].channel->wire) continue;
        narrow_bytes += instructions[i].channel->bytes;
        wide_bytes += wide.program().instructions[i].channel->bytes;
      }
      EXPECT_GT(narrow_bytes, 0);
      EXPECT_EQ(wide_bytes, 2 * narrow_bytes);
      for (std::int64_t number = 1; number <= 3; ++number) {
        const StepOutputs here = narrow.step(number);
        const StepOutputs there = wide.step(number);
        EXPECT_EQ(here.loss, there.loss);
        EXPECT_EQ(here.gradient_norm, there.gradient_norm);
        check_bytes(narrow, here);
        check_bytes(wide, there);
      }
      for (std::size_t p = 0; p < narrow.state().pieces.size(); ++p) {
        EXPECT_TRUE(
            at::equal(narrow.state().parameter(p).trained(), wide.state().parameter(p).trained()));
      }
    }
  }
}

// Waited for where the pass is finished, they are the same sums.
TEST_F(TensorAxis, CollectivesBesideComputeChangeNoBit) {
  for (const Precision precision : {Precision::Float32, Precision::BFloat16}) {
    for (const bool sequence_parallel : {false, true}) {
      for (const char* plan : {"keep-all", "full"}) {
        Setting setting{precision, sequence_parallel, plan};
        setting.beside_compute = plan::test::with_passes_beside_compute;
        expect_same_bits(setting);
      }
    }
  }
}

// And so are they on a lane that the product does not have, whatever carries it. Where sequences
// are cut, a sum of gradients is under way on its own lane when the last of them begins.
TEST_F(TensorAxis, AnotherLaneChangesNoBit) {
  for (const bool sequence_parallel : {false, true}) {
    for (const bool late : {false, true}) {
      Setting setting{Precision::Float32, sequence_parallel, "full"};
      setting.beside_compute = plan::test::with_exchange_lane;
      setting.late = late;
      const std::unique_ptr<TensorRank> beside = expect_same_bits(setting);
      std::uint64_t exchanges = 0;
      for (const plan::Instruction& instruction : beside->program().instructions)
        exchanges += instruction.lane == plan::test::exchange_lane;
      EXPECT_GT(exchanges, 20U);
      // The CPU does where it stands what is put on lanes elsewhere.
      EXPECT_EQ(beside->works_on(plan::test::exchange_lane), late ? 3 * exchanges : 0);
    }
  }
}

// A sum that follows another one of the same gradient starts when that has ended, not when it has
// begun.
TEST_F(TensorAxis, ASumThatFollowsAnotherAddsToWhatThatMade) {
  for (const bool late : {false, true}) {
    Setting setting{Precision::Float32, /*sequence_parallel=*/true, "full"};
    setting.sums_again = true;
    setting.beside_compute = plan::test::with_sums_in_a_row;
    setting.late = late;
    const std::unique_ptr<TensorRank> beside = expect_same_bits(setting);
    std::uint64_t following = 0;
    for (const plan::Instruction& instruction : beside->program().instructions)
      following += !instruction.after.empty();
    EXPECT_GT(following, 3U);
    EXPECT_EQ(beside->works_on(plan::test::exchange_lane), late ? 3 * following : 0);
  }
}

TEST_F(TensorAxis, RefusesACutThatDoesNotDivide) {
  nn::GptSizes sizes{1, 30, 6, 10, 20, 0};
  nn::GptPart part;
  part.tensor_ranks = 4;
  try {
    nn::make_gpt(sizes, 1, nn::Declaration(), part);
    FAIL() << "six heads over four ranks";
  } catch (const ConfigError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("grid.tensor"), std::string::npos) << text;
    EXPECT_NE(text.find("3 and 6"), std::string::npos) << text;
  }
  part.tensor_ranks = 3;
  part.sequence_parallel = true;
  EXPECT_THROW(nn::make_gpt(sizes, 1, nn::Declaration(), part), ConfigError);
  EXPECT_NO_THROW(nn::make_gpt(sizes, 3, nn::Declaration(), part));
}

}  // namespace
}  // namespace garonne::exec
