// Models of fields on a GPU's device over the made-up runtime: the tables of their transforms, and
// all else that the host makes for kernels, are in the device's memory and in the plan.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "exec/cuda_ranks.hpp"
#include "nn/fields/field_model.hpp"

namespace garonne::exec {
namespace {

constexpr std::int64_t batch = 2;

struct Operator {
  std::string name;
  RunConfig::Model keys;
  nn::FieldShape shape;
  std::string loss = "relative-l2";
};

std::vector<Operator> operators(std::int64_t longitudes = 24) {
  Operator fno{"fno", {}, {}};
  fno.keys.kind = "fno";
  fno.keys.layers = 2;
  fno.keys.hidden = 8;
  fno.keys.modes = {4, 4};
  fno.shape.input_channels = fno.shape.target_channels = 1;
  fno.shape.points = {10, 12};
  // What the loss is decoded with is a table too.
  fno.shape.target_mean = {0.25};
  fno.shape.target_deviation = {1.5};

  Operator sfno{"sfno", {}, {}, "area-l2"};
  sfno.keys.kind = "sfno";
  sfno.keys.hidden = 8;
  sfno.keys.layers = 3;
  sfno.keys.scale_factor = 2;
  sfno.shape.input_channels = 3;
  sfno.shape.target_channels = 2;
  sfno.shape.points = {12, longitudes};
  sfno.shape.grid = "equiangular";
  for (int row = 0; row < 12; ++row) sfno.shape.area_weights.push_back(0.5 + row / 11.0);

  Operator afno{"afno", {}, {}};
  afno.keys.kind = "afno";
  afno.keys.hidden = 8;
  afno.keys.layers = 2;
  afno.keys.patch = 2;
  afno.keys.spectral_blocks = 2;
  afno.shape = fno.shape;
  afno.shape.points = {8, 12};

  Operator ufno{"ufno", {}, {}};
  ufno.keys.kind = "ufno";
  ufno.keys.hidden = 8;
  ufno.keys.modes = {4, 4};
  ufno.shape = fno.shape;
  ufno.shape.points = {8, 12};
  return {fno, sfno, afno, ufno};
}

// Waves, and the target a slower wave of the same phase.
HostBatch waves(const nn::FieldShape& shape, std::int64_t number) {
  HostBatch made;
  const auto wave = [](std::int64_t phase, std::int64_t point, double speed) {
    return static_cast<float>(
        std::sin(speed * static_cast<double>(point) + static_cast<double>(phase)));
  };
  for (std::int64_t b = 0; b < batch; ++b) {
    const std::int64_t sample = number * batch + b;
    made.samples.push_back(sample);
    for (std::int64_t c = 0; c < shape.input_channels; ++c) {
      for (std::int64_t p = 0; p < shape.count(); ++p)
        made.fields["input"].push_back(wave(3 * sample + c, p, 0.4));
    }
    for (std::int64_t c = 0; c < shape.target_channels; ++c) {
      for (std::int64_t p = 0; p < shape.count(); ++p)
        made.fields["target"].push_back(wave(3 * sample + c, p, 0.15));
    }
  }
  return made;
}

Setting setting_of(const Operator& trained, Precision precision, const std::string& plan) {
  Setting setting{precision, plan};
  setting.make = [trained](const nn::Declaration& declaration) {
    return nn::make_field_model(trained.keys, trained.loss, trained.shape, batch, declaration);
  };
  setting.load = [trained](std::int64_t number) { return waves(trained.shape, number); };
  return setting;
}

TEST(CudaFields, TrainingHasTheBitsOfTheCpu) {
  for (const Operator& trained : operators()) {
    // Products of few columns in bfloat16 take memory of oneDNN's own on the host, which is not to
    // come from a tier in a device's memory.
    for (const auto& [precision, plan] : std::vector<std::pair<Precision, std::string>>{
             {Precision::Float32, "keep-all"}, {Precision::Float64, "full"}}) {
      SCOPED_TRACE(trained.name + " " + precision_name(precision));
      const Setting setting = setting_of(trained, precision, plan);
      CpuRank cpu(setting);
      // Late streams are the subject of cuda_executor_test.cpp, too.
      device::FakeCudaSettings fake;
      if (trained.name == "fno") fake.delay_seed = 7;
      GpuRank gpu(setting, fake);
      EXPECT_EQ(cpu.state(), gpu.state());
      double first = 0;
      for (std::int64_t number = 1; number <= 2; ++number) {
        const StepOutputs wanted = cpu.step(number);
        const StepOutputs made = gpu.step(number);
        if (number == 1) first = made.loss;
        EXPECT_TRUE(std::isfinite(made.loss));
        EXPECT_EQ(wanted.loss, made.loss);
        EXPECT_EQ(wanted.gradient_norm, made.gradient_norm);
        EXPECT_EQ(cpu.gradients(), gpu.gradients());
        EXPECT_LE(made.peak_bytes, gpu.prediction().peak_bytes);
      }
      EXPECT_NE(first, 0);
      EXPECT_EQ(cpu.state(), gpu.state());
      EXPECT_EQ(cpu.evaluate(), gpu.evaluate());
      EXPECT_EQ(gpu.runtime().violations(), std::vector<std::string>());
    }
  }
}

TEST(CudaFields, TablesAreInThePlanAndInTheTier) {
  for (const Operator& trained : operators()) {
    SCOPED_TRACE(trained.name);
    GpuRank gpu(setting_of(trained, Precision::Float32, "keep-all"));
    EXPECT_FALSE(gpu.tables().empty());
    std::int64_t planned = 0;
    for (const plan::Buffer& buffer : gpu.program().buffers) {
      if (buffer.kind == plan::BufferKind::Workspace) planned += buffer.bytes;
    }
    std::int64_t held = 0;
    for (const auto& [name, table] : gpu.tables()) held += table.numel();
    EXPECT_EQ(held, planned);
    EXPECT_EQ(gpu.tier().live_bytes(), gpu.prediction().static_bytes);
    EXPECT_EQ(gpu.prediction().peak_by_kind[static_cast<std::size_t>(plan::BufferKind::Workspace)],
              planned);
  }
}

// Kernels read the copies and nothing else; of an odd number of longitudes, since what GPUs
// multiply for an even one no kernel of the host reads.
TEST(CudaFields, ATableThatIsDamagedIsSeen) {
  for (const Operator& trained : operators(/*longitudes=*/23)) {
    const Setting setting = setting_of(trained, Precision::Float64, "keep-all");
    CpuRank cpu(setting);
    const double wanted = cpu.evaluate();
    GpuRank whole(setting);
    EXPECT_EQ(whole.evaluate(), wanted);
    int seen = 0;
    for (const auto& entry : whole.tables()) {
      SCOPED_TRACE(trained.name + ": " + entry.first);
      // The header of the harmonics says where functions are; what comes last are numbers.
      GpuRank gpu(setting);
      const at::Tensor& table = gpu.tables().at(entry.first);
      gpu.device().catch_up();
      const at::Tensor numbers = table.view(at::kDouble);
      numbers.narrow(0, numbers.numel() / 2, numbers.numel() - numbers.numel() / 2).fill_(3.0);
      seen += gpu.evaluate() != wanted ? 1 : 0;
    }
    // Those for gradients only are not read here.
    EXPECT_GE(seen, 2) << trained.name;
  }
}

// What is loaded comes by copies that Compute has to follow: before them there are NaN.
TEST(CudaFields, AJoinThatIsNotMadeIsSeen) {
  const Setting setting = setting_of(operators()[0], Precision::Float32, "keep-all");
  CpuRank cpu(setting);
  const double wanted = cpu.evaluate();
  int seen = 0;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    GpuRank gpu(setting, {.delay_seed = seed,
                          .longest_delay_seconds = 0.005,
                          .fault = device::CudaFault::DroppedJoin});
    seen += gpu.evaluate() != wanted ? 1 : 0;
  }
  EXPECT_GT(seen, 0);
}

TEST(CudaFields, TablesOfEqualTransformsAreOne) {
  const Operator fno = operators()[0];
  Operator deeper = fno;
  deeper.keys.layers = 4;
  nn::Declaration declaration;
  const auto tables = [&](const Operator& trained) {
    const nn::Model model =
        nn::make_field_model(trained.keys, trained.loss, trained.shape, batch, declaration);
    return nn::constant_tables(model, declaration.precision).size();
  };
  EXPECT_EQ(tables(fno), 6U) << "three of the transform, coordinates, mean and deviation";
  EXPECT_EQ(tables(deeper), 6U);
}

}  // namespace
}  // namespace garonne::exec
