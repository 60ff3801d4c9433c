// Texts on a GPU's device over the made-up runtime: keys and values are kept there, in a tier of
// exactly the planned bytes, and the logits have the bits of the CPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "device/cpu_device.hpp"
#include "exec/cuda_ranks.hpp"
#include "nn/compute_session.hpp"
#include "train/evaluation/small_texts.hpp"
#include "train/evaluation/text_passes.hpp"

namespace garonne::train {
namespace {

// What kernels of the host take on a device whose blocks are a GPU's.
Setup setup_on(const RunConfig& config, std::int64_t granularity, bool apart) {
  Setup setup = make_setup(config, {vocabulary, {}, {}}, 1);
  setup.step.optimizer_states.clear();
  setup.declaration.granularity = setup.step.granularity = granularity;
  if (!apart) return setup;
  for (const auto& table : nn::constant_tables(setup.model, setup.declaration.precision))
    setup.step.workspaces.push_back({table.name, table.bytes});
  return setup;
}

struct Texts {
  std::vector<std::vector<double>> logits;
  std::int64_t kept_bytes = 0;
  std::int64_t planned_peak_bytes = 0;
  std::int64_t peak_bytes = 0;
};

// The same text twice, as for two continuations of a prompt.
Texts texts_on(const Setup& setup, exec::RankResources resources, exec::ModelState& state,
               std::int64_t budget, std::int64_t prompt, std::int64_t longest) {
  const nn::Products products;
  resources.state = &state;
  resources.products = &products;
  dist::Session alone = dist::Session::single();
  const ParameterPlacement on_device;
  TextPasses passes(setup, resources, on_device, budget, prompt, longest, alone);
  Texts texts;
  for (int round = 0; round < 2; ++round) {
    auto logits =
        all_logits(passes, static_cast<std::size_t>(prompt), static_cast<std::size_t>(longest));
    texts.logits.insert(texts.logits.end(), logits.begin(), logits.end());
  }
  texts.kept_bytes = passes.kept_bytes();
  texts.planned_peak_bytes = passes.planned_peak_bytes();
  texts.peak_bytes = passes.peak_bytes();
  return texts;
}

Texts on_cpu(const RunConfig& config, std::int64_t prompt, std::int64_t longest) {
  const Setup setup = setup_on(config, cpu_allocation_granularity, /*apart=*/false);
  device::CpuDevice device;
  exec::DeviceTier tier(any_budget);
  exec::ModelState state;
  {
    const exec::DeviceScope scope(tier);
    state = exec::initial_state(device.queue(Lane::Compute), setup.model,
                                setup.declaration.precision, 7, std::vector<StateSpec>());
    make_parameters_tell(state);
  }
  exec::RankResources resources;
  resources.device = &device;
  resources.tier = &tier;
  return texts_on(setup, resources, state, any_budget, prompt, longest);
}

// `limit_bytes`: of the tier; `budget`: that texts are planned for.
Texts on_gpu(const RunConfig& config, std::uint64_t delay_seed, std::int64_t limit_bytes,
             std::int64_t budget, std::int64_t prompt, std::int64_t longest) {
  const Setup setup = setup_on(config, cuda_allocation_granularity, /*apart=*/true);
  device::FakeCudaSettings fake;
  fake.delay_seed = delay_seed;
  exec::FakeGpu gpu(limit_bytes, /*host_bytes=*/0, fake, {});
  exec::ModelState state;
  {
    const exec::DeviceScope scope(gpu.tier());
    state = exec::initial_state(gpu.device().queue(Lane::Compute), setup.model,
                                setup.declaration.precision, 7, std::vector<StateSpec>(),
                                &gpu.staging());
    // Kernels here are the host's, and do not wait for the copies.
    gpu.device().catch_up();
    make_parameters_tell(state);
  }
  exec::RankResources resources;
  resources.device = &gpu.device();
  resources.tier = &gpu.tier();
  resources.staging = &gpu.staging();
  return texts_on(setup, resources, state, budget, prompt, longest);
}

class CudaTextPasses : public testing::Test {
 protected:
  CudaTextPasses() { garonne::test::use_threads(1); }
};

constexpr std::int64_t roomy = std::int64_t{8} << 20;

struct Case {
  std::string kind;
  std::string precision;
  std::int64_t prompt;
  std::int64_t longest;
};

RunConfig small_config(const std::string& kind, const std::string& precision) {
  RunConfig config = config_of(kind, precision, {});
  config.model.layers = 2;
  return config;
}

// Within the window, and beyond it; from a prompt of several tokens, and of one.
TEST_F(CudaTextPasses, KeepKeysAndValuesAndHaveTheBitsOfTheCpu) {
  std::uint64_t seed = 1;
  for (const Case& item : {Case{"gpt", "bfloat16", 10, 14}, Case{"llama", "float32", 5, 7},
                           Case{"llama", "bfloat16", 1, 3}}) {
    SCOPED_TRACE(item.kind + " " + item.precision + " " + std::to_string(item.prompt));
    const RunConfig config = small_config(item.kind, item.precision);
    const Texts wanted = on_cpu(config, item.prompt, item.longest);
    const Texts mine = on_gpu(config, ++seed, roomy, any_budget, item.prompt, item.longest);
    EXPECT_GT(mine.kept_bytes, 0);
    EXPECT_EQ(mine.kept_bytes % cuda_allocation_granularity, 0);
    EXPECT_GE(mine.kept_bytes, wanted.kept_bytes);
    EXPECT_LE(mine.peak_bytes, mine.planned_peak_bytes);
    EXPECT_EQ(mine.logits, wanted.logits);
  }
}

// The tier refuses what was not planned: keys and values are of the budget, to the byte.
TEST_F(CudaTextPasses, KeepThemInsideTheBudget) {
  const RunConfig config = small_config("llama", "float32");
  const Texts planned = on_gpu(config, 1, roomy, any_budget, 9, 11);
  const Texts exact =
      on_gpu(config, 2, planned.planned_peak_bytes, planned.planned_peak_bytes, 9, 11);
  EXPECT_EQ(exact.kept_bytes, planned.kept_bytes);
  EXPECT_EQ(exact.logits, planned.logits);
  const std::int64_t less = planned.planned_peak_bytes - 1;
  const Texts whole = on_gpu(config, 3, less, less, 9, 11);
  EXPECT_EQ(whole.kept_bytes, 0);
  EXPECT_LE(whole.planned_peak_bytes, less);
  ASSERT_EQ(whole.logits.size(), planned.logits.size());
  for (std::size_t text = 0; text < whole.logits.size(); ++text) {
    for (std::size_t token = 0; token < vocabulary; ++token)
      EXPECT_NEAR(whole.logits[text][token], planned.logits[text][token], 1e-3);
  }
}

}  // namespace
}  // namespace garonne::train
