// Models on fields against what PyTorch says of them (tests/peer/make_field_values.py).
#include "nn/fields/field_model.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/error.hpp"
#include "nn/compute_session.hpp"
#include "nn/fields/made_up_fields.hpp"
#include "nn/node_runner.hpp"

namespace garonne::nn {
namespace {

using test::expect_slope;
using test::made_up_fields;
using test::made_up_parameters;
using test::ModelRun;
using test::Named;
using test::numbers;
using test::run_model;

const nlohmann::json& reference_values() {
  static const nlohmann::json values = [] {
    std::ifstream file(std::string(GARONNE_SOURCE_DIR) + "/tests/nn/reference_values/fields.json");
    return nlohmann::json::parse(file);
  }();
  return values;
}

RunConfig::Model keys_of(const nlohmann::json& json) {
  RunConfig::Model keys;
  keys.kind = json.at("kind");
  keys.layers = json.at("layers");
  keys.hidden = json.at("hidden");
  keys.block = json.at("block");
  keys.modes = json.at("modes").get<std::vector<std::int64_t>>();
  keys.spectral_weights = json.at("spectral_weights");
  keys.padding = json.at("padding");
  keys.coordinates = json.at("coordinates");
  keys.mlp_ratio = json.at("mlp_ratio");
  if (keys.kind == "fno") return keys;
  keys.factorization = json.at("factorization");
  keys.rank = json.at("rank");
  keys.implementation = json.at("implementation");
  return keys;
}

FieldShape shape_of(const nlohmann::json& json) {
  FieldShape shape;
  shape.input_channels = json.at("input_channels");
  shape.target_channels = json.at("target_channels");
  shape.points = json.at("points").get<std::vector<std::int64_t>>();
  shape.grid = json.at("grid");
  shape.rollout = json.at("rollout");
  shape.push_forward = json.value("push_forward", 0);
  shape.masked = json.value("masked", false);
  shape.area_weights = json.at("area_weights").get<std::vector<double>>();
  shape.target_mean = json.at("target_mean").get<std::vector<double>>();
  shape.target_deviation = json.at("target_deviation").get<std::vector<double>>();
  return shape;
}

struct FieldCase {
  std::string name;
  RunConfig::Model keys;
  FieldShape shape;
  std::int64_t batch = 0;
  std::string loss;
  nlohmann::json outcome;

  Model model(Precision precision) const {
    Declaration declaration;
    declaration.precision = precision;
    return make_field_model(keys, loss, shape, batch, declaration);
  }
};

std::vector<FieldCase> field_cases() {
  std::vector<FieldCase> all;
  for (const auto& json : reference_values().at("cases")) {
    all.push_back({json.at("name"), keys_of(json.at("model")), shape_of(json.at("shape")),
                   json.at("batch"), json.at("loss"), json.at("outcome")});
  }
  return all;
}

FieldCase named_case(const std::string& name) {
  for (const auto& item : field_cases()) {
    if (item.name == name) return item;
  }
  throw InternalError("no case " + name);
}

// `noise`: what rounding leaves of a gradient that is a small difference of large ones.
void check_gradient(const std::string& name, const at::Tensor& gradient,
                    const nlohmann::json& wanted, double scale, double tolerance, double noise) {
  SCOPED_TRACE(name);
  EXPECT_EQ(nlohmann::json(gradient.sizes().vec()), wanted.at("shape"));
  const at::Tensor flat = gradient.reshape({-1});
  const std::int64_t count = flat.numel();
  const double norm = wanted.at("norm").get<double>() * scale;
  ASSERT_GT(norm, 0) << "a gradient that tests nothing";
  const double allowed = tolerance * norm + noise;
  EXPECT_NEAR(flat.norm().item<double>(), norm, allowed);
  // What is off by a vector of norm `allowed` has a product with the weights that is off by up to
  // that times their norm.
  const at::Tensor weights = numbers(503, count);
  const double probe = (flat * weights).sum().item<double>();
  EXPECT_NEAR(probe, wanted.at("probe").get<double>() * scale,
              allowed * weights.norm().item<double>());
  for (std::int64_t k = 0; k < 5; ++k) {
    EXPECT_NEAR(flat[k * (count - 1) / 4].item<double>(),
                wanted.at("elements")[static_cast<std::size_t>(k)].get<double>() * scale, allowed);
  }
}

void check_case(const FieldCase& item, Precision precision, double tolerance,
                double loss_scale = 1) {
  SCOPED_TRACE(item.name + " " + precision_name(precision));
  const Model model = item.model(precision);
  const ModelRun run = run_model(model, precision, made_up_parameters(model),
                                 made_up_fields(item.shape, item.batch), loss_scale);
  const auto& outcome = item.outcome;
  const double loss = outcome.at("loss");
  EXPECT_NEAR(run.loss, loss, tolerance * loss);
  const auto& gradients = outcome.at("gradients");
  ASSERT_EQ(run.gradients.size(), gradients.size());
  double squares = 0;
  for (const auto& wanted : gradients) squares += std::pow(wanted.at("norm").get<double>(), 2);
  constexpr double roundings = 8;  // one after another on the way back
  const NumberType type =
      precision == Precision::Float64 ? NumberType::Float64 : NumberType::Float32;
  const double noise = roundings * test::half_unit(type) * std::sqrt(squares) * loss_scale;
  for (const auto& [name, gradient] : run.gradients) {
    // A shift of the whole field changes none of its slopes, whose rounded gradients then add up to
    // little else than their errors.
    if (item.loss == "h1" && precision != Precision::Float64 && name == "project.down.bias")
      continue;
    check_gradient(name, gradient, gradients.at(name), loss_scale, tolerance, noise);
  }
}

TEST(FieldModel, LossAndGradientsInFloat64) {
  for (const auto& item : field_cases()) check_case(item, Precision::Float64, 1e-11);
}

TEST(FieldModel, LossAndGradientsInFloat32) {
  for (const auto& item : field_cases()) check_case(item, Precision::Float32, 1e-5);
}

// Pointwise work is bfloat16, transforms and contraction are float32. Beside float64, which is held
// to PyTorch above, by what rounding does to each gradient.
TEST(FieldModel, LossAndGradientsInBFloat16) {
  for (const auto& item : field_cases()) {
    SCOPED_TRACE(item.name);
    const auto make = [&](Precision precision) { return item.model(precision); };
    test::expect_off_by_rounding(make, Precision::BFloat16,
                                 made_up_parameters(make(Precision::Float64)),
                                 made_up_fields(item.shape, item.batch));
  }
}

TEST(FieldModel, LossScaleMultipliesEveryGradient) {
  for (const char* const name : {"neuralop 2d", "h1 in a box", "rollout of a history"})
    check_case(named_case(name), Precision::Float64, 1e-11, 0.125);
}

TEST(FieldModel, RunAgainGivesTheSameBits) {
  for (const auto& item : field_cases()) {
    SCOPED_TRACE(item.name);
    const Model model = item.model(Precision::Float32);
    const Named parameters = made_up_parameters(model);
    const Named fields = made_up_fields(item.shape, item.batch);
    const ModelRun once = run_model(model, Precision::Float32, parameters, fields);
    const ModelRun again = run_model(model, Precision::Float32, parameters, fields, 1, true);
    EXPECT_EQ(once.loss, again.loss);
    for (const auto& [name, gradient] : once.gradients)
      EXPECT_TRUE(at::equal(gradient, again.gradients.at(name))) << name;
  }
}

// Apart from any reference: a gradient is a slope.
TEST(FieldModel, FiniteDifferences) {
  for (const auto& item : field_cases()) {
    SCOPED_TRACE(item.name);
    // Steps without gradients are part of the slope, and not of the gradient.
    if (item.shape.push_forward > 0) continue;
    const Model model = item.model(Precision::Float64);
    const Named parameters = made_up_parameters(model);
    const Named fields = made_up_fields(item.shape, item.batch);
    expect_slope(model, parameters, fields, 1e-5, 1e-7);
  }
}

TEST(FieldModel, PredictorGivesThePredictionOfTheLoss) {
  for (const char* const name : {"neuralop 2d", "li 2d", "tucker 3d"}) {
    const FieldCase item = named_case(name);
    SCOPED_TRACE(name);
    Declaration declaration;
    declaration.precision = Precision::Float64;
    const Model model = make_field_predictor(item.keys, item.shape, item.batch, declaration);
    const ModelRun run = run_model(model, Precision::Float64, made_up_parameters(model),
                                   {{"input", made_up_fields(item.shape, item.batch).at("input")}});
    const std::int64_t channels = item.shape.target_channels;
    const at::Tensor channels_first =
        run.values.back().view({item.batch, item.shape.count(), channels}).transpose(1, 2);
    const at::Tensor flat = channels_first.reshape({-1});
    const auto& wanted = item.outcome.at("prediction");
    const std::int64_t places[] = {0, flat.numel() / 2, flat.numel() - 1};
    for (std::size_t k = 0; k < 3; ++k)
      EXPECT_NEAR(flat[places[k]].item<double>(), wanted[k].get<double>(), 1e-11);
    const double norm = item.outcome.at("prediction_norm");
    EXPECT_NEAR(flat.norm().item<double>(), norm, 1e-11 * norm);
  }
}

std::int64_t parameters_of(const RunConfig::Model& keys, std::int64_t inputs,
                           std::vector<std::int64_t> points) {
  FieldShape shape;
  shape.input_channels = inputs;
  shape.target_channels = 1;
  shape.points = std::move(points);
  return make_field_model(keys, "auto", shape, 1, Declaration()).graph.parameter_elements();
}

// Real numbers of the published models: the paper's Darcy and Navier-Stokes programs, the
// configured models of the library.
TEST(FieldModel, ParameterCountsArePublishedOnes) {
  RunConfig::Model li;
  li.kind = "fno";
  li.block = "li";
  li.spectral_weights = "corners";
  li.layers = 4;
  li.hidden = 32;
  li.modes = {12, 12};
  li.padding = 9;
  EXPECT_EQ(parameters_of(li, 1, {85, 85}), 2'368'001);
  li.hidden = 20;
  li.padding = 0;
  li.modes = {8, 8, 8};
  // The programs of the Navier-Stokes models had batch norms, which later ones left out.
  const std::int64_t batch_norms = li.layers * 2 * li.hidden;
  EXPECT_EQ(parameters_of(li, 10, {64, 64, 40}), 6'558'537 - batch_norms);
  li.modes = {8, 8};
  EXPECT_EQ(parameters_of(li, 10, {64, 64}), 414'517 - batch_norms);

  RunConfig::Model library;
  library.kind = "fno";
  library.layers = 4;
  library.hidden = 24;
  library.modes = {16, 16};
  EXPECT_EQ(parameters_of(library, 1, {16, 16}), 671'113);
  library.modes = {8, 8};
  EXPECT_EQ(parameters_of(library, 1, {16, 16}), 191'881);
}

TEST(FieldModel, RefusesKeysThatDoNotFit) {
  const FieldCase item = named_case("neuralop 2d");
  const auto refused = [&](const std::string& key, const auto& change) {
    RunConfig::Model keys = item.keys;
    FieldShape shape = item.shape;
    std::string loss = item.loss;
    change(keys, shape, loss);
    try {
      make_field_model(keys, loss, shape, 1, Declaration());
    } catch (const ConfigError& error) {
      EXPECT_EQ(error.key(), key) << error.what();
      return;
    }
    ADD_FAILURE() << "no error for " << key;
  };
  using Keys = RunConfig::Model;
  refused("model.kind", [](Keys& k, FieldShape&, std::string&) { k.kind = "gpt"; });
  refused("model.modes", [](Keys& k, FieldShape&, std::string&) { k.modes = {4}; });
  refused("model.modes", [](Keys& k, FieldShape&, std::string&) { k.modes = {4, 16}; });
  refused("model.modes", [](Keys& k, FieldShape&, std::string&) { k.modes = {9, 4}; });
  refused("model.heads", [](Keys& k, FieldShape&, std::string&) { k.heads = 8; });
  refused("model.rank", [](Keys& k, FieldShape&, std::string&) { k.rank = 0.5; });
  refused("model.norm", [](Keys& k, FieldShape&, std::string&) { k.norm = "layer"; });
  refused("model.mlp_ratio", [](Keys& k, FieldShape&, std::string&) { k.mlp_ratio = 0.01; });
  refused("model.mlp_ratio", [](Keys& k, FieldShape&, std::string&) {
    k.block = "li";
    k.mlp_ratio = 1;
  });
  refused("train.loss", [](Keys&, FieldShape&, std::string& loss) { loss = "cross-entropy"; });
  refused("train.loss", [](Keys& k, FieldShape& shape, std::string& loss) {
    loss = "h1";
    k.modes = {2, 2};
    shape.points = {3, 8};
  });
  refused("train.members", [](Keys&, FieldShape& shape, std::string&) { shape.members = 2; });
  refused("train.members", [](Keys&, FieldShape& shape, std::string& loss) {
    loss = "crps";
    shape.noise = 0.1;
  });
  refused("train.noise", [](Keys&, FieldShape& shape, std::string& loss) {
    loss = "crps";
    shape.members = 2;
  });
  refused("train.rollout", [](Keys&, FieldShape& shape, std::string&) {
    shape.rollout = 2;
    shape.target_channels = 3;
  });
  refused("train.push_forward", [](Keys&, FieldShape& shape, std::string&) {
    shape.push_forward = 1;
    shape.target_channels = 3;
  });
}

}  // namespace
}  // namespace garonne::nn
