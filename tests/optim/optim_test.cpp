// AdamW against the tensor library's, the schedule and clipping.
#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>

#include <cmath>

#include "base/error.hpp"
#include "nn/compute_session.hpp"
#include "optim/optimizer.hpp"
#include "optim/schedule.hpp"

namespace garonne::optim {
namespace {

// `Reference` is the tensor library's optimizer that optimizer.decay = `decay` stands for.
template <typename Reference, typename Options>
void compare_with_reference(const std::string& decay, at::ScalarType type, double tolerance,
                            bool decays, double gradient_scale) {
  RunConfig config;
  config.optimizer.decay = decay;
  config.optimizer.weight_decay = 0.1;
  config.optimizer.beta1 = 0.8;
  config.optimizer.beta2 = 0.97;
  config.optimizer.epsilon = 1e-7;
  const auto optimizer = make_optimizer(config);
  ASSERT_EQ(optimizer->state_names(), (std::vector<std::string>{"first_moment", "second_moment"}));
  at::manual_seed(3);
  // No multiple of a vector.
  const at::Tensor start = at::randn({1037}, type);
  const at::Tensor reference = start.clone().requires_grad_(true);
  ParameterUpdate update;
  update.parameter = start.clone();
  update.states = {at::zeros_like(start), at::zeros_like(start)};
  update.decays = decays;
  Reference theirs({reference},
                   Options(1.0).betas({0.8, 0.97}).eps(1e-7).weight_decay(decays ? 0.1 : 0.0));
  for (std::int64_t step = 1; step <= 20; ++step) {
    const double learning_rate = 1e-2 * static_cast<double>(step % 7 + 1);
    const at::Tensor gradient =
        at::randn({1037}, type) * std::pow(10.0, static_cast<double>(step % 5) - 2);
    update.gradient = gradient.clone();
    optimizer->update(update, step, learning_rate, gradient_scale);
    EXPECT_TRUE(at::equal(update.gradient, gradient)) << "gradients are read only";
    for (auto& group : theirs.param_groups()) group.options().set_lr(learning_rate);
    reference.mutable_grad() = gradient * gradient_scale;
    theirs.step();
    const at::NoGradGuard no_gradients;
    const at::Tensor error = (update.parameter - reference.detach()).abs().max();
    ASSERT_LT(error.item<double>(), tolerance * reference.detach().abs().max().item<double>())
        << "step " << step;
  }
  EXPECT_FALSE(at::equal(update.parameter, start));
}

TEST(AdamW, TwentyStepsLikeTheTensorLibrarys) {
  for (const bool decays : {true, false}) {
    for (const double scale : {1.0, 0.25}) {
      const auto adamw = compare_with_reference<torch::optim::AdamW, torch::optim::AdamWOptions>;
      const auto adam = compare_with_reference<torch::optim::Adam, torch::optim::AdamOptions>;
      adamw("decoupled", at::kFloat, 1e-6, decays, scale);
      adamw("decoupled", at::kDouble, 1e-12, decays, scale);
      adam("l2", at::kFloat, 1e-6, decays, scale);
      adam("l2", at::kDouble, 1e-12, decays, scale);
    }
  }
}

TEST(AdamW, WritesTheComputeCopyOfAMaster) {
  const auto optimizer = make_optimizer(RunConfig());
  at::manual_seed(4);
  ParameterUpdate update;
  update.parameter = at::randn({100});
  update.states = {at::zeros({100}), at::zeros({100})};
  update.gradient = at::randn({100});
  update.compute_copy = at::zeros({100}, at::kBFloat16);
  update.decays = true;
  optimizer->update(update, 1, 0.1, 1.0);
  EXPECT_TRUE(at::equal(update.compute_copy, update.parameter.to(at::kBFloat16)));
}

TEST(Optimizers, UnknownName) {
  RunConfig config;
  config.optimizer.name = "sgd";
  EXPECT_THROW(make_optimizer(config), ConfigError);
}

TEST(Schedule, WarmUpThenCosine) {
  RunConfig config;
  config.train.steps = 1100;
  config.optimizer.warmup_steps = 100;
  config.optimizer.learning_rate = 4e-3;
  config.optimizer.minimum_learning_rate = 1e-3;
  const auto at = [&](std::int64_t step) { return learning_rate_at(config, step); };
  EXPECT_DOUBLE_EQ(at(1), 4e-5);
  EXPECT_DOUBLE_EQ(at(50), 2e-3);
  EXPECT_DOUBLE_EQ(at(100), 4e-3) << "the end of the warm-up";
  EXPECT_LT(at(101), 4e-3);
  EXPECT_NEAR(at(101), 4e-3, 1e-7) << "no jump";
  EXPECT_DOUBLE_EQ(at(600), 2.5e-3) << "half-way down";
  EXPECT_NEAR(at(350), 1e-3 + 3e-3 * (0.5 + 0.5 * std::sqrt(0.5)), 1e-15);
  EXPECT_DOUBLE_EQ(at(1100), 1e-3) << "the last step";
  EXPECT_DOUBLE_EQ(at(5000), 1e-3) << "and after it";
  for (std::int64_t step = 1; step < 1100; ++step) {
    EXPECT_EQ(step<100, at(step + 1)> at(step)) << step;
  }
}

TEST(Schedule, WithoutWarmUpOrShorterThanIt) {
  RunConfig config;
  config.train.steps = 10;
  config.optimizer.warmup_steps = 0;
  config.optimizer.learning_rate = 1e-3;
  config.optimizer.minimum_learning_rate = 0;
  EXPECT_GT(learning_rate_at(config, 1), 0.9e-3);
  EXPECT_NEAR(learning_rate_at(config, 10), 0, 1e-18);
  config.optimizer.warmup_steps = 40;
  EXPECT_DOUBLE_EQ(learning_rate_at(config, 10), 0.25e-3);
  config.optimizer.warmup_steps = 10;
  EXPECT_DOUBLE_EQ(learning_rate_at(config, 10), 1e-3);
}

TEST(Clipping, ScalesToTheNorm) {
  EXPECT_EQ(clip_scale(5.0, 0.0), 1.0) << "0 is off";
  EXPECT_EQ(clip_scale(0.5, 1.0), 1.0);
  EXPECT_EQ(clip_scale(0.0, 1.0), 1.0);
  EXPECT_NEAR(clip_scale(4.0, 1.0), 0.25, 1e-6);
  EXPECT_LE(4.0 * clip_scale(4.0, 1.0), 1.0);
  // As clip_grad_norm_ has it.
  EXPECT_DOUBLE_EQ(clip_scale(4.0, 2.0), 2.0 / (4.0 + 1e-6));
}

}  // namespace
}  // namespace garonne::optim
