// The executor, end to end on a small GPT: bits and refusals.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "dist/session.hpp"
#include "exec/gpt_rank.hpp"

namespace garonne::exec {
namespace {

TEST(Executor, RecomputingGivesTheSameBits) {
  for (const Precision precision : precisions) {
    // The last one with dropout of attention.
    for (const int micro_batches : {1, 2, 4, 3}) {
      Setting setting;
      setting.precision = precision;
      setting.micro_batches = micro_batches;
      if (micro_batches == 3) setting.attention_dropout = 0.3;
      SCOPED_TRACE(setting.text());
      Rank keeping(setting);
      std::vector<std::unique_ptr<Rank>> recomputing;
      for (const char* plan : {"full", "uniform", "selective", "any 1", "any 2"}) {
        setting.plan = plan;
        recomputing.push_back(std::make_unique<Rank>(setting));
      }
      for (std::int64_t step = 1; step <= 3; ++step) {
        const StepOutputs kept = keeping.step(step);
        for (const auto& rank : recomputing) {
          const StepOutputs recomputed = rank->step(step);
          EXPECT_EQ(kept.loss, recomputed.loss);
          EXPECT_EQ(kept.gradient_norm, recomputed.gradient_norm);
          ASSERT_EQ(keeping.gradients().size(), keeping.model().graph.parameters.size());
          EXPECT_EQ(keeping.gradients(), rank->gradients());
        }
      }
      for (const auto& rank : recomputing) {
        for (std::size_t p = 0; p < keeping.state().pieces.size(); ++p) {
          const ParameterState a = keeping.state().parameter(p);
          const ParameterState b = rank->state().parameter(p);
          EXPECT_TRUE(at::equal(a.parameter, b.parameter));
          EXPECT_TRUE(at::equal(a.trained(), b.trained()));
          EXPECT_TRUE(at::equal(a.states[0], b.states[0]));
          EXPECT_TRUE(at::equal(a.states[1], b.states[1]));
        }
        int recomputations = 0;
        for (const auto& instruction : rank->program().instructions)
          recomputations += instruction.recompute;
        EXPECT_GT(recomputations, 0);
      }
    }
  }
}

// As another node makes it, but for the type or the shape of what one of its passes hands out.
class Misdeclared : public nn::Node {
 public:
  using Change = std::function<at::Tensor(const at::Tensor&)>;
  Misdeclared(std::shared_ptr<const nn::Node> node, Change output, Change gradient)
      : node_(std::move(node)), output_(std::move(output)), gradient_(std::move(gradient)) {}

  plan::NodeSpec declare(const nn::Declaration& declaration) const override {
    return node_->declare(declaration);
  }
  at::Tensor forward(const nn::Context& context, const std::vector<at::Tensor>& inputs,
                     const std::vector<at::Tensor>& parameters, nn::Record* record) const override {
    return output_(node_->forward(context, inputs, parameters, record));
  }
  std::vector<at::Tensor> backward(const nn::Context& context,
                                   nn::BackwardArguments& arguments) const override {
    std::vector<at::Tensor> gradients = node_->backward(context, arguments);
    gradients[0] = gradient_(gradients[0]);
    return gradients;
  }

 private:
  std::shared_ptr<const nn::Node> node_;
  Change output_;
  Change gradient_;
};

TEST(Executor, WhatANodeMakesHasTheTypeAndShapeThatTheModelDeclares) {
  const Misdeclared::Change same = [](const at::Tensor& made) { return made; };
  const Misdeclared::Change flat = [](const at::Tensor& made) { return made.view({-1}); };
  const Misdeclared::Change longs = [](const at::Tensor& made) { return made.to(at::kInt); };
  const Misdeclared::Change fewer = [](const at::Tensor& made) { return made.narrow(0, 1, 1); };
  struct Case {
    Misdeclared::Change output;
    Misdeclared::Change gradient;
    std::vector<std::string> words;  // of the refusal; none where there is none
  };
  const std::string rows = std::to_string(Setting().batch * Setting().sequence);
  const std::string columns = std::to_string(4 * Setting().hidden);
  const std::string declared = "declares Float [" + rows + ", " + columns + "]";
  const std::vector<Case> cases = {
      {same, same, {}},
      {flat, same, {"forward", "layer.1.gelu", "as Float [", declared}},
      {longs, same, {"forward", "layer.1.gelu", "as Int [" + rows, declared}},
      {same, longs, {"backward", "gradient of layer.1.up as Int [" + rows, declared}},
      {same, fewer, {"backward", "gradient of layer.1.up as Float [1, ", declared}},
      // Gradients have as many elements, and get the shape of their values.
      {same, flat, {}},
  };
  for (const Case& given : cases) {
    Rank rank{Setting()};
    nn::Model& model = rank.model();
    for (std::size_t n = 0; n < model.nodes.size(); ++n) {
      if (model.graph.nodes[n].name != "layer.1.gelu") continue;
      model.nodes[n] = std::make_shared<Misdeclared>(model.nodes[n], given.output, given.gradient);
    }
    std::string message;
    try {
      rank.step();
    } catch (const InternalError& error) {
      message = error.what();
    }
    EXPECT_EQ(message.empty(), given.words.empty()) << message;
    for (const std::string& word : given.words)
      EXPECT_NE(message.find(word), std::string::npos) << word << " in: " << message;
  }
}

TEST(Executor, AMicroBatchHasTheElementsThatTheModelDeclares) {
  Rank rank{Setting()};
  for (plan::ValueSpec& value : rank.model().graph.values) {
    if (value.name == "tokens") value.shape = {value.shape[0] + 1};
  }
  EXPECT_THROW(rank.step(), InternalError);
}

TEST(Executor, DropoutActsAndChangesFromStepToStep) {
  Setting setting;
  Rank rank(setting);
  const double first = rank.step(1, 0).loss;
  EXPECT_EQ(rank.step(1, 0).loss, first) << "a step can be done again";
  EXPECT_NE(rank.step(2, 0).loss, first);
  setting.dropout = 0;
  Rank plain(setting);
  EXPECT_NE(plain.step(1, 0).loss, first);
  EXPECT_EQ(plain.step(1, 0).loss, plain.step(2, 0).loss);
}

TEST(Executor, DropoutOfAttentionActsInTrainingOnly) {
  Setting setting;
  setting.precision = Precision::Float64;
  setting.dropout = 0;
  Rank plain(setting);
  setting.attention_dropout = 0.4;
  Rank rank(setting);
  const double first = rank.step(1, 0).loss;
  EXPECT_EQ(rank.step(1, 0).loss, first) << "a step can be done again";
  EXPECT_NE(rank.step(2, 0).loss, first);
  EXPECT_GT(std::abs(plain.step(1, 0).loss - first), 1e-6);
  EXPECT_NEAR(rank.evaluate().report.at(0), plain.evaluate().report.at(0), 1e-13);
}

// How a batch is cut is a matter of rounding only, dropout included.
TEST(Executor, CuttingTheBatchOtherwiseGivesTheSameGradients) {
  Setting setting;
  setting.precision = Precision::Float64;
  setting.attention_dropout = 0.2;
  setting.batch = 4;
  Rank whole(setting);
  setting.batch = 2;
  setting.micro_batches = 2;
  Rank halves(setting);
  setting.batch = 1;
  setting.micro_batches = 4;
  setting.plan = "full";
  Rank quarters(setting);
  const StepOutputs wanted = whole.step();
  for (Rank* rank : {&halves, &quarters}) {
    const StepOutputs got = rank->step();
    EXPECT_NEAR(got.loss, wanted.loss, 1e-13 * wanted.loss);
    EXPECT_NEAR(got.gradient_norm, wanted.gradient_norm, 1e-12 * wanted.gradient_norm);
    for (std::size_t p = 0; p < whole.gradients().size(); ++p) {
      double error = 0;
      double size = 0;
      for (std::size_t i = 0; i < whole.gradients()[p].size(); ++i) {
        error += std::pow(rank->gradients()[p][i] - whole.gradients()[p][i], 2);
        size += std::pow(whole.gradients()[p][i], 2);
      }
      EXPECT_LE(std::sqrt(error), 1e-11 * std::sqrt(size))
          << whole.model().graph.parameters[p].name;
    }
  }
}

TEST(Executor, LossGoesDown) {
  for (const Precision precision : precisions) {
    Setting setting;
    setting.precision = precision;
    setting.micro_batches = 2;
    setting.dropout = 0;
    SCOPED_TRACE(setting.text());
    Rank rank(setting);
    const double first = rank.step(1, 3e-3).loss;
    double last = first;
    for (std::int64_t step = 2; step <= 40; ++step) last = rank.step(step, 3e-3).loss;
    EXPECT_NEAR(first, std::log(static_cast<double>(vocabulary)), 0.2);
    EXPECT_LT(last, 0.6 * first);
  }
}

TEST(Executor, MastersAndTheirComputeCopiesStayTogether) {
  Setting setting;
  setting.precision = Precision::BFloat16;
  Rank rank(setting);
  for (std::int64_t step = 1; step <= 3; ++step) rank.step(step);
  for (std::size_t p = 0; p < rank.state().pieces.size(); ++p) {
    const ParameterState parameter = rank.state().parameter(p);
    ASSERT_TRUE(parameter.master.defined());
    EXPECT_EQ(parameter.master.scalar_type(), at::kFloat);
    EXPECT_TRUE(at::equal(parameter.parameter, parameter.master.to(at::kBFloat16)));
  }
}

TEST(Executor, GradientNormIsThatOfTheGradients) {
  Setting setting;
  setting.precision = Precision::Float64;
  Rank rank(setting);
  const double norm = rank.step().gradient_norm;
  double squares = 0;
  for (const auto& gradient : rank.gradients()) {
    for (const double element : gradient) squares += element * element;
  }
  EXPECT_NEAR(norm, std::sqrt(squares), 1e-12 * norm);
}

TEST(Executor, ClippingScalesTheFirstMoment) {
  Setting setting;
  setting.precision = Precision::Float64;
  Rank plain(setting);
  Rank clipped(setting);
  const double norm = plain.step().gradient_norm;
  clipped.clip_norm = norm / 4;
  EXPECT_EQ(clipped.step().gradient_norm, norm) << "reported before clipping";
  for (std::size_t p = 0; p < plain.state().pieces.size(); ++p) {
    EXPECT_TRUE(at::allclose(clipped.state().parameter(p).states[0] * 4,
                             plain.state().parameter(p).states[0], 1e-5, 1e-15));
  }
}

TEST(Executor, ANumberThatIsNoneIsRefusedBeforeTheUpdate) {
  Setting setting;
  Rank rank(setting);
  rank.step(1);
  rank.state().parameter(4).parameter.fill_(std::numeric_limits<float>::infinity());
  std::vector<at::Tensor> before;
  for (std::size_t p = 0; p < rank.state().pieces.size(); ++p)
    before.push_back(rank.state().parameter(p).parameter.clone());
  try {
    rank.step(2);
    ADD_FAILURE() << "not refused";
  } catch (const dist::AgreedError& error) {
    EXPECT_EQ(error.code(), ExitCode::Refused);
    for (const char* part : {"step 2", "loss is nan", "nothing was updated"}) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  }
  for (std::size_t p = 0; p < before.size(); ++p) {
    EXPECT_TRUE(at::equal(before[p], rank.state().parameter(p).parameter)) << p;
  }
}

TEST(InitialState, FollowsSeedNameAndPrecision) {
  Setting setting;
  Rank a(setting);
  Rank b(setting);
  setting.precision = Precision::BFloat16;
  Rank low(setting);
  for (std::size_t p = 0; p < a.state().pieces.size(); ++p) {
    const auto& spec = a.model().graph.parameters[p];
    const at::Tensor parameter = a.state().parameter(p).parameter;
    EXPECT_TRUE(at::equal(parameter, b.state().parameter(p).parameter));
    EXPECT_TRUE(at::equal(parameter, low.state().parameter(p).master))
        << "masters start where float32 does";
    EXPECT_EQ(parameter.sizes().vec(), spec.shape);
    const double deviation = a.model().initialisations[p].deviation;
    if (deviation == 0) {
      EXPECT_TRUE(
          at::equal(parameter, at::full_like(parameter, a.model().initialisations[p].constant)));
    } else {
      // Five standard errors of the deviation of so many normal numbers.
      const double error = deviation / std::sqrt(2.0 * static_cast<double>(spec.elements));
      EXPECT_NEAR(parameter.std().item<double>(), deviation, 5 * error) << spec.name;
    }
    const ParameterState kept = a.state().parameter(p);
    for (const auto& state : kept.states) EXPECT_TRUE(at::equal(state, at::zeros_like(state)));
  }
  const ModelState other =
      initial_state(Queue(), a.model(), Precision::Float32, 12,
                    std::vector<StateSpec>{{.name = "first_moment"}, {.name = "second_moment"}});
  EXPECT_FALSE(at::equal(other.parameter(0).parameter, a.state().parameter(0).parameter));
}

}  // namespace
}  // namespace garonne::exec
