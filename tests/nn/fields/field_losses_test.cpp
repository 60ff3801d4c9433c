// Losses of models on fields that PyTorch has no values for: under masks, and of ensembles.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "nn/fields/field_model.hpp"
#include "nn/fields/made_up_fields.hpp"
#include "nn/node_runner.hpp"

namespace garonne::nn {
namespace {

using test::expect_slope;
using test::made_up_fields;
using test::made_up_parameters;
using test::ModelRun;
using test::Named;
using test::relative_error;
using test::run_model;

const char* const losses[] = {"relative-l2", "relative-l2-channels", "squared-l2", "area-l2", "h1"};

// Small, with a loss of its own.
Model masked_model(const std::string& loss, FieldShape& shape, std::int64_t batch) {
  RunConfig::Model keys;
  keys.kind = "fno";
  keys.layers = 1;
  keys.hidden = 3;
  keys.modes = {2, 2};
  shape.input_channels = shape.target_channels = 2;
  shape.points = {5, 6};
  shape.grid = "equiangular";
  shape.area_weights = {0.4, 1.2, 1.8, 1.2, 0.4};
  Declaration declaration;
  declaration.precision = Precision::Float64;
  return make_field_model(keys, loss, shape, batch, declaration);
}

TEST(FieldModel, AMaskOfOnesChangesNothing) {
  for (const char* const loss : losses) {
    SCOPED_TRACE(loss);
    FieldShape shape;
    const Model plain = masked_model(loss, shape, 2);
    shape.masked = true;
    const Model masked = masked_model(loss, shape, 2);
    Named fields = made_up_fields(shape, 2);
    fields["mask"] = at::ones_like(fields["target"]);
    const Named parameters = made_up_parameters(plain);
    const ModelRun wanted = run_model(plain, Precision::Float64, parameters, fields);
    const ModelRun got = run_model(masked, Precision::Float64, parameters, fields);
    EXPECT_NEAR(got.loss, wanted.loss, 1e-14 * wanted.loss);
    for (const auto& [name, gradient] : wanted.gradients)
      EXPECT_LT(relative_error(got.gradients.at(name), gradient), 1e-13) << name;
  }
}

// What stands in the target where the mask is 0 changes no bit; a channel of a sample without any
// value, and a sample without any, count as 0.
TEST(FieldModel, MaskedValuesHaveNoInfluence) {
  for (const char* const loss : losses) {
    SCOPED_TRACE(loss);
    FieldShape shape;
    shape.masked = true;
    const Model model = masked_model(loss, shape, 3);
    const Named parameters = made_up_parameters(model);
    Named fields = made_up_fields(shape, 3);
    const at::Tensor mask = fields.at("mask").view({3, 2, 30});
    mask.select(0, 0).select(0, 1).zero_();
    mask.select(0, 2).zero_();
    const ModelRun wanted = run_model(model, Precision::Float64, parameters, fields);
    EXPECT_GT(wanted.loss, 0);
    fields["target"] = at::where(fields.at("mask"), fields.at("target"), 1e3);
    const ModelRun got = run_model(model, Precision::Float64, parameters, fields);
    EXPECT_EQ(got.loss, wanted.loss);
    for (const auto& [name, gradient] : wanted.gradients) {
      EXPECT_TRUE(at::equal(got.gradients.at(name), gradient)) << name;
      EXPECT_TRUE(std::isfinite(gradient.norm().item<double>())) << name;
    }
    mask.zero_();
    const ModelRun nothing = run_model(model, Precision::Float64, parameters, fields);
    EXPECT_EQ(nothing.loss, 0);
    for (const auto& [name, gradient] : nothing.gradients)
      EXPECT_EQ(gradient.abs().max().item<double>(), 0) << name;
  }
}

// Two steps of ensembles with gaps.
FieldShape ensemble_shape() {
  FieldShape shape;
  shape.rollout = 2;
  shape.masked = true;
  shape.members = 3;
  shape.noise = 0.5;
  return shape;
}

std::vector<at::Tensor> predictions_of(const Model& model, const ModelRun& run) {
  std::vector<at::Tensor> predictions;
  for (const auto& node : model.graph.nodes) {
    if (node.kind == "field_loss")
      predictions.push_back(run.values[static_cast<std::size_t>(node.inputs[0])]);
  }
  return predictions;
}

// The definition, over all ordered pairs of members, on the predictions that the model has made.
TEST(FieldModel, TheLossOfAnEnsembleIsItsFairScore) {
  constexpr std::int64_t batch = 2;
  FieldShape shape = ensemble_shape();
  const Model model = masked_model("crps", shape, batch);
  const Named fields = made_up_fields(shape, batch);
  const ModelRun run = run_model(model, Precision::Float64, made_up_parameters(model), fields);
  const std::vector<at::Tensor> predictions = predictions_of(model, run);
  ASSERT_EQ(predictions.size(), 2U);
  const at::Tensor targets = fields.at("target").view({2, batch, 2, 30});
  const at::Tensor masks = fields.at("mask").view({2, batch, 2, 30}).to(at::kDouble);
  const at::Tensor areas =
      at::tensor(shape.area_weights, at::kDouble).view({5, 1}).expand({5, 6}).reshape({30});
  double loss = 0;
  for (std::int64_t step = 0; step < 2; ++step) {
    const at::Tensor members =
        predictions[static_cast<std::size_t>(step)].view({batch, 3, 30, 2}).permute({1, 0, 3, 2});
    at::Tensor score = (members - targets[step]).abs().mean(0);
    for (std::int64_t m = 0; m < 3; ++m) {
      for (std::int64_t n = 0; n < 3; ++n) {
        if (m != n) {
          EXPECT_GT((members[m] - members[n]).abs().max().item<double>(), 1e-6);
        }
        score = score - (members[m] - members[n]).abs() / (2.0 * 3 * 2);
      }
    }
    const at::Tensor weights = masks[step] * areas;
    const at::Tensor means = (score * weights).sum(-1) / weights.sum(-1);
    loss += means.mean().item<double>() / 2;
  }
  EXPECT_NEAR(run.loss, loss, 1e-13);
}

// Members are what single runs forecast from inputs with noise, the first one with the same.
TEST(FieldModel, MembersAreForecastsOfTheirOwn) {
  constexpr std::int64_t batch = 2;
  FieldShape shape = ensemble_shape();
  const Model model = masked_model("crps", shape, batch);
  const Named parameters = made_up_parameters(model);
  const Named fields = made_up_fields(shape, batch);
  const ModelRun run = run_model(model, Precision::Float64, parameters, fields);
  FieldShape alone = shape;
  alone.members = 1;
  const Model single = masked_model("area-l2", alone, batch);
  const ModelRun one = run_model(single, Precision::Float64, parameters, fields);
  const auto all = predictions_of(model, run);
  const auto first = predictions_of(single, one);
  for (std::size_t step = 0; step < 2; ++step) {
    const at::Tensor of_first = all[step].view({batch, 3, 60}).select(1, 0).reshape({-1});
    EXPECT_LT(relative_error(of_first, first[step].view({-1})), 1e-13);
  }
  // Other samples and steps have other noise.
  test::RunSource later;
  later.step = 1;
  test::RunSource others;
  others.first_sample = 8;
  for (const test::RunSource& source : {later, others}) {
    const ModelRun other =
        run_model(model, Precision::Float64, parameters, fields, 1, false, source);
    EXPECT_GT(relative_error(predictions_of(model, other)[0], all[0]), 1e-3);
  }
}

TEST(FieldModel, TheGradientOfAnEnsembleIsASlope) {
  constexpr std::int64_t batch = 2;
  FieldShape shape = ensemble_shape();
  const Model model = masked_model("crps", shape, batch);
  const Named parameters = made_up_parameters(model);
  const Named fields = made_up_fields(shape, batch);
  const double slope = expect_slope(model, parameters, fields, 1e-7, 1e-6);
  EXPECT_GT(std::abs(slope), 1e-3);
}

}  // namespace
}  // namespace garonne::nn
