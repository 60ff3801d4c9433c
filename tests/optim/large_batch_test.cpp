// Optimizers of large batches, which take norms of whole parameters, against their formulas written
// out, and what else belongs to the recipe: rates by the batch, decays of parameters' own.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "optim/optimizer.hpp"
#include "optim/schedule.hpp"

namespace garonne::optim {
namespace {

constexpr std::int64_t elements = 1037;

RunConfig config_of(const std::string& name, const std::string& decay) {
  RunConfig config;
  config.optimizer.name = name;
  config.optimizer.decay = decay;
  config.optimizer.weight_decay = 0.1;
  config.optimizer.beta1 = 0.8;
  return config;
}

// A parameter whose parts different ranks have, from these elements on.
class Parts {
 public:
  Parts(const Optimizer& optimizer, at::Tensor parameter, std::vector<std::int64_t> firsts)
      : optimizer_(optimizer), parameter_(std::move(parameter)), firsts_(std::move(firsts)) {
    for (std::size_t k = 0; k < optimizer.states().size(); ++k)
      states_.push_back(at::zeros_like(parameter_));
    firsts_.push_back(parameter_.numel());
  }

  // With sums that are added up from those of the parts.
  void update(const at::Tensor& gradient, std::int64_t step, double rate, double scale,
              bool matrix) {
    const TensorSums numbers = optimizer_.sums().at(0);
    const at::Tensor sums = at::zeros({numbers.numbers}, at::kDouble);
    for (const bool updates : {false, true}) {
      for (std::size_t k = 0; k + 1 < firsts_.size(); ++k) {
        const auto part = [&](const at::Tensor& of) {
          return of.narrow(0, firsts_[k], firsts_[k + 1] - firsts_[k]);
        };
        ParameterUpdate update;
        update.parameter = part(parameter_);
        for (const at::Tensor& state : states_) update.states.push_back(part(state));
        update.gradient = part(gradient);
        update.decays = true;
        update.matrix = matrix;
        update.sums = {sums};
        if (updates) {
          optimizer_.update(Queue(), update, step, rate, {.value = scale});
        } else {
          optimizer_.add_sums(Queue(), update, 0, step, rate, {.value = scale});
        }
      }
    }
  }

  const at::Tensor& parameter() const { return parameter_; }
  const std::vector<at::Tensor>& states() const { return states_; }

 private:
  const Optimizer& optimizer_;
  at::Tensor parameter_;
  std::vector<at::Tensor> states_;
  std::vector<std::int64_t> firsts_;
};

double norm_of(const at::Tensor& tensor) {
  return tensor.norm().item<double>();
}

struct LambByHand {
  at::Tensor parameter;
  at::Tensor first = at::zeros_like(parameter);
  at::Tensor second = at::zeros_like(parameter);
  double largest = 0;  // trust

  void update(const at::Tensor& gradient, std::int64_t step, double rate,
              const RunConfig::Optimizer& keys, bool matrix) {
    const bool l2 = keys.decay == "l2";
    const at::Tensor slope = l2 ? gradient + keys.weight_decay * parameter : gradient;
    first = keys.beta1 * first + (1 - keys.beta1) * slope;
    second = keys.beta2 * second + (1 - keys.beta2) * slope * slope;
    const auto steps = static_cast<double>(step);
    at::Tensor direction = first / (1 - std::pow(keys.beta1, steps)) /
                           ((second / (1 - std::pow(keys.beta2, steps))).sqrt() + keys.epsilon);
    if (!l2) direction = direction + keys.weight_decay * parameter;
    double trust = matrix ? norm_of(parameter) / norm_of(direction) : 1;
    if (matrix && keys.trust_limit > 0) trust = std::min(trust, keys.trust_limit);
    largest = std::max(largest, trust);
    parameter = parameter - rate * trust * direction;
  }
};

TEST(Lamb, TwentyStepsByTheFormulaHoweverItIsCut) {
  for (const std::string decay : {"decoupled", "l2"}) {
    for (const bool matrix : {true, false}) {
      for (const double limit : {0.0, 0.5}) {
        RunConfig config = config_of("lamb", decay);
        config.optimizer.beta2 = 0.97;
        config.optimizer.epsilon = 1e-3;
        config.optimizer.trust_limit = limit;
        const auto optimizer = make_optimizer(config);
        at::manual_seed(11);
        const at::Tensor start = at::randn({elements}, at::kDouble);
        LambByHand wanted{start};
        Parts whole(*optimizer, start.clone(), {0});
        Parts cut(*optimizer, start.clone(), {0, 1, 400});
        for (std::int64_t step = 1; step <= 20; ++step) {
          const double rate = 1e-2 * static_cast<double>(step % 7 + 1);
          const at::Tensor gradient = at::randn({elements}, at::kDouble);
          wanted.update(gradient * 0.5, step, rate, config.optimizer, matrix);
          for (Parts* one : {&whole, &cut}) {
            one->update(gradient, step, rate, 0.5, matrix);
            ASSERT_LT((one->parameter() - wanted.parameter).abs().max().item<double>(), 1e-12)
                << decay << ", step " << step;
          }
        }
        if (matrix && limit == 0) {
          EXPECT_GT(wanted.largest, 0.5) << "the limit is one";
        }
      }
    }
  }
}

struct LarsByHand {
  at::Tensor parameter;
  at::Tensor moment = at::zeros_like(parameter);

  void update(const at::Tensor& gradient, double rate, const RunConfig::Optimizer& keys,
              bool matrix) {
    const bool l2 = keys.decay == "l2";
    const double inside = l2 ? keys.weight_decay : 0;
    double trust = 1;
    if (matrix) {
      trust = keys.trust_coefficient * norm_of(parameter) /
              (norm_of(gradient) + inside * norm_of(parameter) + keys.epsilon);
      if (keys.trust_limit > 0) trust = std::min(trust, keys.trust_limit);
    }
    moment = keys.beta1 * moment + rate * trust * (gradient + inside * parameter);
    if (!l2) parameter = parameter * (1 - rate * keys.weight_decay);
    parameter = parameter - moment;
  }
};

TEST(Lars, TwentyStepsByTheFormulaHoweverItIsCut) {
  for (const std::string decay : {"decoupled", "l2"}) {
    for (const bool matrix : {true, false}) {
      for (const double limit : {0.0, 0.015}) {
        RunConfig config = config_of("lars", decay);
        config.optimizer.epsilon = 1e-3;
        config.optimizer.trust_coefficient = 0.02;
        config.optimizer.trust_limit = limit;
        const auto optimizer = make_optimizer(config);
        at::manual_seed(12);
        const at::Tensor start = at::randn({elements}, at::kDouble);
        LarsByHand wanted{start};
        Parts whole(*optimizer, start.clone(), {0});
        Parts cut(*optimizer, start.clone(), {0, 7, 999});
        for (std::int64_t step = 1; step <= 20; ++step) {
          const double rate = 1e-1 * static_cast<double>(step % 7 + 1);
          const at::Tensor gradient = at::randn({elements}, at::kDouble);
          wanted.update(gradient * 0.25, rate, config.optimizer, matrix);
          for (Parts* one : {&whole, &cut}) {
            one->update(gradient, step, rate, 0.25, matrix);
            ASSERT_LT((one->parameter() - wanted.parameter).abs().max().item<double>(), 1e-12)
                << decay << ", step " << step;
          }
        }
      }
    }
  }
}

// Of a new matrix of zeros, or one that gets no gradient, there is no ratio of norms.
TEST(LargeBatch, NormsOfZeroAdaptNothing) {
  for (const char* name : {"lamb", "lars"}) {
    const auto optimizer = make_optimizer(config_of(name, "decoupled"));
    Parts zeros(*optimizer, at::zeros({130}, at::kDouble), {0});
    Parts vectors(*optimizer, at::zeros({130}, at::kDouble), {0});
    const at::Tensor gradient = at::ones({130}, at::kDouble);
    zeros.update(gradient, 1, 1e-2, 1.0, true);
    vectors.update(gradient, 1, 1e-2, 1.0, false);
    EXPECT_TRUE(at::equal(zeros.parameter(), vectors.parameter())) << name;
    EXPECT_GT(norm_of(zeros.parameter()), 0) << name;
    Parts still(*optimizer, at::ones({130}, at::kDouble), {0});
    still.update(at::zeros({130}, at::kDouble), 1, 1e-2, 1.0, true);
    EXPECT_TRUE(at::isfinite(still.parameter()).all().item<bool>()) << name;
  }
}

TEST(LargeBatch, SumsChangeNothingAndAreAdded) {
  for (const char* name : {"lamb", "lars"}) {
    const auto optimizer = make_optimizer(config_of(name, "l2"));
    at::manual_seed(13);
    ParameterUpdate update;
    update.parameter = at::randn({130});
    for (std::size_t k = 0; k < optimizer->states().size(); ++k)
      update.states.push_back(at::rand({130}));
    update.gradient = at::randn({130});
    update.matrix = update.decays = true;
    const at::Tensor parameter = update.parameter.clone();
    const at::Tensor state = update.states[0].clone();
    ASSERT_EQ(optimizer->sums(), (std::vector<TensorSums>{{.numbers = 2}}));
    update.sums = {at::ones({2}, at::kDouble)};
    const auto sums = [&](int k) { return update.sums[0][k].item<double>(); };
    optimizer->add_sums(Queue(), update, 0, 3, 0.1, {.value = 1.0});
    EXPECT_TRUE(at::equal(update.parameter, parameter));
    EXPECT_TRUE(at::equal(update.states[0], state));
    const std::vector<double> once = {sums(0), sums(1)};
    EXPECT_NEAR(once[0], 1 + std::pow(norm_of(parameter.to(at::kDouble)), 2), 1e-10);
    optimizer->add_sums(Queue(), update, 0, 3, 0.1, {.value = 1.0});
    for (const int k : {0, 1}) {
      const double first = once[static_cast<std::size_t>(k)];
      EXPECT_GT(first, 1.0) << name;
      EXPECT_NEAR(sums(k) - first, first - 1, 1e-10) << name;
    }
  }
  EXPECT_TRUE(make_optimizer(RunConfig())->sums().empty());
}

TEST(LargeBatch, NothingChangesWithoutAFiniteScale) {
  for (const char* name : {"lamb", "lars"}) {
    const auto optimizer = make_optimizer(config_of(name, "decoupled"));
    Parts parts(*optimizer, at::ones({130}, at::kDouble), {0, 64});
    parts.update(at::ones({130}, at::kDouble), 1, 0.1, std::nan(""), true);
    EXPECT_TRUE(at::equal(parts.parameter(), at::ones({130}, at::kDouble))) << name;
    EXPECT_EQ(norm_of(parts.states()[0]), 0) << name;
  }
}

TEST(WeightDecay, IsTheParametersOwnWhereItHasOne) {
  for (const OptimizerKind& kind : optimizer_kinds()) {
    RunConfig config = config_of(kind.name, "decoupled");
    if (kind.name == "adafactor") config.optimizer.beta1 = RunConfig().optimizer.beta1;
    const auto updated = [&](double of_run, std::optional<double> own, bool decays) {
      config.optimizer.weight_decay = of_run;
      const auto optimizer = make_optimizer(config);
      ParameterUpdate update;
      update.parameter = at::ones({130});
      const MatrixSides sides{130, 1};
      for (const StateSpec& state : optimizer->states())
        update.states.push_back(at::zeros({state.blocks.count(130, sides)}));
      for (const TensorSums& sums : optimizer->sums())
        update.sums.push_back(at::ones({sums.count(sides)}, at::kDouble));
      update.part = kernels::whole_matrix(130, 1);
      update.gradient = at::full({130}, 0.5);
      update.decays = decays;
      update.weight_decay = own;
      optimizer->update(Queue(), update, 1, 0.1, {.value = 1.0});
      return update.parameter;
    };
    EXPECT_TRUE(at::equal(updated(0.3, 0.7, true), updated(0.7, {}, true))) << kind.name;
    EXPECT_TRUE(at::equal(updated(0.3, 0.7, false), updated(0.0, {}, true))) << kind.name;
    EXPECT_FALSE(at::equal(updated(0.3, 0.7, true), updated(0.3, {}, true))) << kind.name;
  }
}

TEST(Keys, OnesThatAnOptimizerHasNotAreRefusedByName) {
  struct Case {
    std::string key;
    void (*set)(RunConfig::Optimizer&);
    std::vector<std::string> has;
  };
  const std::vector<Case> cases = {
      {"optimizer.complex", [](auto& keys) { keys.complex = "joint"; }, {"adamw"}},
      {"optimizer.beta1",
       [](auto& keys) { keys.beta1 = 0.5; },
       {"adamw", "lamb", "lars", "lion", "sgd"}},
      {"optimizer.beta2_power", [](auto& keys) { keys.beta2_power = 0.5; }, {"adafactor"}},
      {"optimizer.square_epsilon", [](auto& keys) { keys.square_epsilon = 0.5; }, {"adafactor"}},
      {"optimizer.update_limit", [](auto& keys) { keys.update_limit = 0; }, {"adafactor"}},
      {"optimizer.smallest_scale", [](auto& keys) { keys.smallest_scale = 0; }, {"adafactor"}},
      {"optimizer.beta2", [](auto& keys) { keys.beta2 = 0.5; }, {"adamw", "lamb", "lion"}},
      {"optimizer.epsilon", [](auto& keys) { keys.epsilon = 0.5; }, {"adamw", "lamb", "lars"}},
      {"optimizer.trust_coefficient", [](auto& keys) { keys.trust_coefficient = 2; }, {"lars"}},
      {"optimizer.trust_limit", [](auto& keys) { keys.trust_limit = 0; }, {"lamb", "lars"}}};
  for (const Case& one : cases) {
    for (const OptimizerKind& kind : optimizer_kinds()) {
      RunConfig config;
      config.optimizer.name = kind.name;
      one.set(config.optimizer);
      if (std::find(one.has.begin(), one.has.end(), kind.name) != one.has.end()) {
        EXPECT_NO_THROW(make_optimizer(config)) << one.key << " of " << kind.name;
        continue;
      }
      try {
        make_optimizer(config);
        FAIL() << one.key << " of " << kind.name;
      } catch (const ConfigError& error) {
        EXPECT_EQ(error.key(), one.key);
      }
    }
  }
}

TEST(BatchScaling, IsLinearOrByTheRoot) {
  RunConfig config;
  config.optimizer.schedule = "linear";
  config.train.steps = 1000;
  config.train.global_batch = 512;
  const double before = learning_rate_at(config, 10);
  const double late = learning_rate_at(config, 900);
  EXPECT_EQ(batch_scale(config), 1);
  config.optimizer.base_batch = 128;
  EXPECT_DOUBLE_EQ(batch_scale(config), 4);
  EXPECT_DOUBLE_EQ(learning_rate_at(config, 10), 4 * before);
  EXPECT_DOUBLE_EQ(learning_rate_at(config, 900), 4 * late);
  config.optimizer.batch_scaling = "root";
  EXPECT_DOUBLE_EQ(batch_scale(config), 2);
  EXPECT_DOUBLE_EQ(learning_rate_at(config, 10), 2 * before);
  config.train.global_batch = 32;
  EXPECT_DOUBLE_EQ(batch_scale(config), 0.5);
  config.optimizer.base_batch = 0;
  try {
    make_optimizer(config);
    FAIL() << "scales with nothing";
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.key(), "optimizer.batch_scaling");
  }
}

}  // namespace
}  // namespace garonne::optim
