// Optimizers against the tensor library's or their formulas, and the schedules.
#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <cmath>

#include "base/device.hpp"
#include "base/error.hpp"
#include "nn/compute_session.hpp"
#include "optim/exercise_optimizers.hpp"
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
  ASSERT_EQ(optimizer->states().size(), 2U);
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
    optimizer->update(Queue(), update, step, learning_rate, {.value = gradient_scale});
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

TEST(Sgd, TwentyStepsLikeTheTensorLibrarys) {
  for (const auto type : {at::kFloat, at::kDouble}) {
    for (const bool decays : {true, false}) {
      RunConfig config;
      config.optimizer.name = "sgd";
      config.optimizer.decay = "l2";
      config.optimizer.weight_decay = 0.1;
      config.optimizer.beta1 = 0.8;
      const auto optimizer = make_optimizer(config);
      at::manual_seed(9);
      ParameterUpdate update;
      update.parameter = at::randn({1037}, type);
      update.states = {at::zeros({1037}, type)};
      update.decays = decays;
      const at::Tensor reference = update.parameter.clone().requires_grad_(true);
      torch::optim::SGD theirs(
          {reference},
          torch::optim::SGDOptions(1.0).momentum(0.8).weight_decay(decays ? 0.1 : 0.0));
      for (std::int64_t step = 1; step <= 20; ++step) {
        const double rate = 1e-2 * static_cast<double>(step % 7 + 1);
        update.gradient = at::randn({1037}, type);
        optimizer->update(Queue(), update, step, rate, {.value = 0.25});
        for (auto& group : theirs.param_groups()) group.options().set_lr(rate);
        reference.mutable_grad() = update.gradient * 0.25;
        theirs.step();
        const double error = (update.parameter - reference.detach()).abs().max().item<double>();
        ASSERT_LT(error, type == at::kFloat ? 1e-5 : 1e-13) << "step " << step;
      }
    }
  }
}

// The published update, written out.
TEST(Lion, TwentyStepsByTheFormula) {
  for (const std::string decay : {"decoupled", "l2"}) {
    RunConfig config;
    config.optimizer.name = "lion";
    config.optimizer.decay = decay;
    config.optimizer.weight_decay = 0.1;
    config.optimizer.beta1 = 0.8;
    config.optimizer.beta2 = 0.97;
    const auto optimizer = make_optimizer(config);
    at::manual_seed(10);
    ParameterUpdate update;
    update.parameter = at::randn({1037}, at::kDouble);
    update.states = {at::zeros({1037}, at::kDouble)};
    update.decays = true;
    at::Tensor wanted = update.parameter.clone();
    at::Tensor moment = at::zeros_like(wanted);
    for (std::int64_t step = 1; step <= 20; ++step) {
      const double rate = 1e-3 * static_cast<double>(step % 7 + 1);
      update.gradient = at::randn({1037}, at::kDouble);
      optimizer->update(Queue(), update, step, rate, {.value = 0.5});
      at::Tensor slope = update.gradient * 0.5;
      if (decay == "l2") slope = slope + 0.1 * wanted;
      const at::Tensor direction = at::sign(0.8 * moment + 0.2 * slope);
      if (decay == "decoupled") wanted = wanted * (1 - rate * 0.1);
      wanted = wanted - rate * direction;
      moment = 0.97 * moment + 0.03 * slope;
      ASSERT_LT((update.parameter - wanted).abs().max().item<double>(), 1e-13) << "step " << step;
    }
  }
}

// What is recorded once takes its rate from where rates() is put.
TEST(Optimizers, TakeTheirRatesFromTheirPlace) {
  for (const OptimizerKind& kind : optimizer_kinds()) {
    SCOPED_TRACE(kind.name);
    RunConfig config;
    config.optimizer.name = kind.name;
    const auto optimizer = make_optimizer(config);
    const auto updated = [&](bool by_place) {
      at::manual_seed(11);
      ParameterUpdate update;
      update.parameter = at::randn({130});
      for (std::size_t k = 0; k < optimizer->states().size(); ++k)
        update.states.push_back(at::rand({130}));
      update.gradient = at::randn({130});
      update.matrix = true;
      update.part = kernels::whole_matrix(13, 10);
      for (const TensorSums& sums : optimizer->sums())
        update.sums.push_back(at::rand({sums.count({13, 10})}, at::kDouble) + 0.5);
      const std::vector<double> rates = optimizer->rates(3, 0.1);
      EXPECT_LE(rates.size(), most_rates);
      if (by_place) update.rates = rates.data();
      optimizer->update(Queue(), update, by_place ? 1 : 3, by_place ? 7.0 : 0.1, {.value = 1.0});
      return update.parameter;
    };
    EXPECT_TRUE(at::equal(updated(true), updated(false)));
  }
}

TEST(Optimizers, WithoutASecondMomentHaveNoConventionForIt) {
  RunConfig config;
  config.optimizer.complex = "joint";
  for (const char* name : {"sgd", "lion"}) {
    config.optimizer.name = name;
    EXPECT_THROW(make_optimizer(config), ConfigError) << name;
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
  optimizer->update(Queue(), update, 1, 0.1, {.value = 1.0});
  EXPECT_TRUE(at::equal(update.compute_copy, update.parameter.to(at::kBFloat16)));
}

// The published update written out in complex numbers: one second moment, of the squared magnitude.
TEST(AdamW, JointMomentsOfComplexNumbers) {
  for (const std::string decay : {"decoupled", "l2"}) {
    for (const auto type : {at::kFloat, at::kDouble}) {
      RunConfig config;
      config.optimizer.complex = "joint";
      config.optimizer.decay = decay;
      config.optimizer.weight_decay = 0.1;
      config.optimizer.beta1 = 0.8;
      config.optimizer.beta2 = 0.97;
      config.optimizer.epsilon = 1e-7;
      const auto optimizer = make_optimizer(config);
      at::manual_seed(5);
      constexpr std::int64_t numbers = 519;  // no multiple of a vector
      const auto real = at::TensorOptions().dtype(type);
      ParameterUpdate update;
      update.parameter = at::randn({2 * numbers}, real);
      update.states = {at::zeros({2 * numbers}, real), at::zeros({2 * numbers}, real)};
      update.decays = update.complex = true;
      const auto as_complex = [](const at::Tensor& pairs) {
        return at::view_as_complex(pairs.to(at::kDouble).view({-1, 2}));
      };
      at::Tensor wanted = as_complex(update.parameter).clone();
      at::Tensor first = at::zeros_like(wanted);
      at::Tensor second = at::zeros({numbers}, at::kDouble);
      for (std::int64_t step = 1; step <= 20; ++step) {
        const double rate = 1e-2 * static_cast<double>(step % 7 + 1);
        const double scale = step % 2 == 0 ? 0.25 : 1.0;
        update.gradient = at::randn({2 * numbers}, real);
        optimizer->update(Queue(), update, step, rate, {.value = scale});
        at::Tensor slope = as_complex(update.gradient) * scale;
        if (decay == "l2") slope = slope + 0.1 * wanted;
        first = 0.8 * first + 0.2 * slope;
        second = 0.97 * second + 0.03 * at::square(slope.abs());
        const double count = static_cast<double>(step);
        const at::Tensor root = at::sqrt(second / (1 - std::pow(0.97, count))) + 1e-7;
        if (decay == "decoupled") wanted = wanted * (1 - rate * 0.1);
        wanted = wanted - rate / (1 - std::pow(0.8, count)) * first / root;
        const double error = (as_complex(update.parameter) - wanted).abs().max().item<double>();
        ASSERT_LT(error, (type == at::kFloat ? 2e-6 : 1e-13) * wanted.abs().max().item<double>())
            << decay << " step " << step;
      }
      // Both numbers of a pair hold the moment.
      const at::Tensor moments = update.states[1].view({-1, 2});
      EXPECT_TRUE(at::equal(moments.select(1, 0), moments.select(1, 1)));
      EXPECT_LT((moments.select(1, 0) - second).abs().max().item<double>(), 1e-5);
    }
  }
}

TEST(AdamW, RealParametersHaveMomentsOfTheirOwn) {
  at::manual_seed(6);
  const at::Tensor start = at::randn({64});
  const at::Tensor gradient = at::randn({64});
  const auto updated = [&](const std::string& convention, bool complex) {
    RunConfig config;
    config.optimizer.complex = convention;
    ParameterUpdate update;
    update.parameter = start.clone();
    update.states = {at::zeros({64}), at::zeros({64})};
    update.gradient = gradient;
    update.complex = complex;
    make_optimizer(config)->update(Queue(), update, 1, 0.1, {.value = 1.0});
    return update.parameter;
  };
  const at::Tensor independent = updated("independent", true);
  EXPECT_TRUE(at::equal(updated("joint", false), independent));
  EXPECT_TRUE(at::equal(updated("independent", false), independent));
  EXPECT_FALSE(at::equal(updated("joint", true), independent));
}

TEST(AdamW, WritesTheComputeCopyOfComplexMasters) {
  RunConfig config;
  config.optimizer.complex = "joint";
  const auto optimizer = make_optimizer(config);
  at::manual_seed(7);
  ParameterUpdate update;
  update.parameter = at::randn({130});
  update.states = {at::zeros({130}), at::zeros({130})};
  update.gradient = at::randn({130});
  update.compute_copy = at::zeros({130}, at::kBFloat16);
  update.complex = true;
  optimizer->update(Queue(), update, 1, 0.1, {.value = 1.0});
  EXPECT_TRUE(at::equal(update.compute_copy, update.parameter.to(at::kBFloat16)));
}

TEST(Optimizers, NumbersOfStates) {
  const StateBlocks each;
  EXPECT_TRUE(each.elementwise());
  EXPECT_EQ(each.count(1000), 1000);
  const StateSpec scales{.name = "scales", .type = StateType::Float32, .blocks = {256, 1}};
  const StateSpec factors{.name = "factors", .blocks = {256, 32}};
  const StateSpec codes{.name = "codes", .type = StateType::UInt8};
  for (const auto& [elements, blocks] :
       {std::pair{0, 0}, std::pair{1, 1}, std::pair{256, 1}, std::pair{257, 2}}) {
    EXPECT_EQ(scales.bytes(elements, 8), 4 * blocks);
    EXPECT_EQ(factors.bytes(elements, 8), 8 * 32 * blocks);
    EXPECT_EQ(codes.bytes(elements, 8), elements);
  }
  for (const StateSpec& moment : make_optimizer(RunConfig())->states()) {
    EXPECT_TRUE(moment.blocks.elementwise());
    EXPECT_EQ(moment.bytes(10, 4), 40);
    EXPECT_EQ(moment.bytes(10, 8), 80);
  }
}

// What a new optimizer takes: a file, and a line of the registry.
TEST(Optimizers, AreFoundByTheRegistrysNames) {
  RunConfig config;
  for (const OptimizerKind& kind : exercise_kinds()) {
    config.optimizer.name = kind.name;
    EXPECT_FALSE(make_optimizer(config, exercise_kinds())->states().empty());
  }
  EXPECT_THROW(make_optimizer(config), ConfigError) << "the exercise stays in tests";
}

TEST(Optimizers, UnknownName) {
  RunConfig config;
  config.optimizer.name = "adamm";
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

RunConfig schedule_of(const std::string& name) {
  RunConfig config;
  config.train.steps = 1100;
  config.optimizer.schedule = name;
  config.optimizer.warmup_steps = 100;
  config.optimizer.learning_rate = 4e-3;
  config.optimizer.minimum_learning_rate = 1e-3;
  return config;
}

TEST(Schedule, LinearAndConstant) {
  const RunConfig linear = schedule_of("linear");
  EXPECT_DOUBLE_EQ(learning_rate_at(linear, 25), 1e-3);
  EXPECT_DOUBLE_EQ(learning_rate_at(linear, 100), 4e-3);
  EXPECT_DOUBLE_EQ(learning_rate_at(linear, 350), 3.25e-3);
  EXPECT_DOUBLE_EQ(learning_rate_at(linear, 1100), 1e-3);
  EXPECT_DOUBLE_EQ(learning_rate_at(linear, 1101), 1e-3);
  const RunConfig constant = schedule_of("constant");
  EXPECT_DOUBLE_EQ(learning_rate_at(constant, 25), 1e-3);
  for (const std::int64_t step : {100, 101, 1100, 1101})
    EXPECT_DOUBLE_EQ(learning_rate_at(constant, step), 4e-3);
}

TEST(Schedule, StableThenDown) {
  RunConfig config = schedule_of("warmup-stable-decay");
  const auto at = [&](std::int64_t step) { return learning_rate_at(config, step); };
  EXPECT_DOUBLE_EQ(at(50), 2e-3);
  for (const std::int64_t step : {100, 101, 600, 1000}) EXPECT_DOUBLE_EQ(at(step), 4e-3) << step;
  EXPECT_DOUBLE_EQ(at(1050), 2.5e-3) << "half of the last tenth";
  EXPECT_DOUBLE_EQ(at(1100), 1e-3);
  config.optimizer.decay_steps = 400;
  EXPECT_DOUBLE_EQ(at(700), 4e-3);
  EXPECT_DOUBLE_EQ(at(800), 3.25e-3);
  config.optimizer.decay_steps = 5000;
  EXPECT_NEAR(at(101), 4e-3, 1e-5) << "no jump where it is longer than what is left";
  EXPECT_DOUBLE_EQ(at(600), 2.5e-3);
}

TEST(Schedule, UnknownName) {
  EXPECT_THROW(learning_rate_at(schedule_of("cosin"), 200), ConfigError);
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

// What a norm that is not finite makes of the scale.
TEST(AdamW, ChangesNothingWithoutAFiniteScale) {
  const auto optimizer = make_optimizer(RunConfig());
  at::manual_seed(8);
  ParameterUpdate update;
  update.parameter = at::randn({130});
  update.states = {at::randn({130}), at::rand({130})};
  update.gradient = at::randn({130});
  update.compute_copy = at::ones({130}, at::kBFloat16);
  const at::Tensor parameter = update.parameter.clone();
  const std::vector<at::Tensor> states = {update.states[0].clone(), update.states[1].clone()};
  for (const double number : {std::nan(""), HUGE_VAL, -HUGE_VAL}) {
    optimizer->update(Queue(), update, 1, 0.1, {.place = &number});
    EXPECT_TRUE(at::equal(update.parameter, parameter)) << number;
    EXPECT_TRUE(at::equal(update.states[0], states[0])) << number;
    EXPECT_TRUE(at::equal(update.states[1], states[1])) << number;
    EXPECT_TRUE(at::equal(update.compute_copy, at::ones({130}, at::kBFloat16))) << number;
  }
  const double finite = 0.5;
  optimizer->update(Queue(), update, 1, 0.1, {.place = &finite});
  EXPECT_FALSE(at::equal(update.parameter, parameter));
}

}  // namespace
}  // namespace garonne::optim
