// SFNO and AFNO against PyTorch's autograd on networks written from the papers in Python
// (make_operator_values.py): the same weights and inputs, made from integers on both sides.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/error.hpp"
#include "base/file.hpp"
#include "exec/profile/profile.hpp"
#include "nn/compute_session.hpp"
#include "nn/declared_bytes.hpp"
#include "nn/element_type.hpp"
#include "nn/fields/field_model.hpp"
#include "nn/gemm/product.hpp"
#include "nn/roundings.hpp"

namespace garonne::nn {
namespace {

// SplitMix64 of (salt, position), uniform in [-1, 1); `numbers` of the script.
at::Tensor numbers(std::int64_t count, std::uint64_t salt) {
  at::Tensor tensor = at::empty({count}, at::kDouble);
  double* const values = tensor.data_ptr<double>();
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint64_t x =
        (static_cast<std::uint64_t>(i) + (salt << 32)) * std::uint64_t{0x9E3779B97F4A7C15};
    x = (x ^ (x >> 30)) * std::uint64_t{0xBF58476D1CE4E5B9};
    x = (x ^ (x >> 27)) * std::uint64_t{0x94D049BB133111EB};
    x ^= x >> 31;
    values[i] = static_cast<double>(x >> 11) * std::pow(2.0, -52) - 1;
  }
  return tensor;
}

const nlohmann::json& operator_reference() {
  static const nlohmann::json values = [] {
    std::ifstream file(std::string(GARONNE_SOURCE_DIR) +
                       "/tests/nn/reference_values/operators.json");
    return nlohmann::json::parse(file);
  }();
  return values;
}

RunConfig::Model operator_keys(const nlohmann::json& item) {
  RunConfig config;
  for (const auto& [name, value] : item.at("model").items()) {
    for (const KeySpec& key : config_keys()) {
      if (key.name != "model." + name) continue;
      key.set(config, value.is_string() ? value.get<std::string>() : value.dump());
    }
  }
  return config.model;
}

FieldShape operator_shape(const nlohmann::json& item) {
  FieldShape shape;
  shape.input_channels = item.at("input_channels");
  shape.target_channels = item.at("target_channels");
  shape.points = item.at("points").get<std::vector<std::int64_t>>();
  shape.grid = item.at("grid");
  return shape;
}

using garonne::test::ErrorsOfRounding;
using garonne::test::Roundings;
using Named = std::map<std::string, at::Tensor>;

Named parameters_of(const Model& model) {
  // Numbered in the order of their names.
  std::map<std::string, std::vector<std::int64_t>> shapes;
  for (const auto& spec : model.graph.parameters) shapes[spec.name] = spec.shape;
  Named parameters;
  std::uint64_t salt = 0;
  for (const auto& [name, shape] : shapes) {
    const std::int64_t count =
        std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
    at::Tensor values = numbers(count, ++salt) * 0.5;
    const bool gain = name.find("norm") != std::string::npos && name.ends_with("weight");
    parameters[name] = (gain ? values + 1 : values).view(shape);
  }
  return parameters;
}

struct Result {
  at::Tensor prediction;
  Named gradients;
  at::Tensor input_gradient;  // undefined: inputs take none
};

std::vector<at::Tensor> gather(const std::vector<at::Tensor>& from, const std::vector<int>& which) {
  std::vector<at::Tensor> tensors;
  for (const int i : which) tensors.push_back(from[static_cast<std::size_t>(i)]);
  return tensors;
}

// The model node by node, as the executor would, from a given gradient of the prediction. Where a
// node may write its input's gradient over the output's, it does. `roundings` may be none.
Result run_nodes(const Model& model, Precision precision, const Named& parameters,
                 const at::Tensor& input, const at::Tensor& output_gradient,
                 Roundings* roundings = nullptr) {
  const at::NoGradGuard no_gradients;
  const auto& graph = model.graph;
  const Products products;
  Context context;
  context.precision = precision;
  context.batch = model.batch;
  context.products = &products;
  const auto rounded = [&](int value, const at::Tensor& exact) {
    return roundings ? roundings->value(static_cast<std::size_t>(value), exact) : exact;
  };
  const auto compute = compute_scalar_type(precision);
  std::vector<at::Tensor> p;
  std::vector<at::Tensor> parameter_gradients;
  for (const auto& spec : graph.parameters) {
    p.push_back(parameters.at(spec.name).to(compute).contiguous());
    if (roundings) p.back() = roundings->parameter(p.back());
    // At an odd place, as in a bucket behind a parameter of one number.
    parameter_gradients.push_back(at::full({spec.elements + 1}, std::nan(""),
                                           at::TensorOptions().dtype(state_scalar_type(precision)))
                                      .narrow(0, 1, spec.elements));
  }
  std::vector<bool> written(p.size(), false);
  std::vector<at::Tensor> values(graph.values.size());
  values[0] = rounded(0, input.to(compute).view(graph.values[0].shape).contiguous());
  std::vector<Record> records(graph.nodes.size());
  std::vector<int> uses(graph.values.size(), 0);
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    const auto& spec = graph.nodes[n];
    for (const int i : spec.inputs) ++uses[static_cast<std::size_t>(i)];
    const at::Tensor out = model.nodes[n]->forward(context, gather(values, spec.inputs),
                                                   gather(p, spec.parameters), &records[n]);
    const auto& value = graph.values[static_cast<std::size_t>(spec.output)];
    EXPECT_EQ(out.sizes(), value.shape) << spec.name;
    EXPECT_EQ(out.scalar_type(), scalar_type_of(value.type)) << spec.name;
    EXPECT_TRUE(out.is_contiguous()) << spec.name;
    values[static_cast<std::size_t>(spec.output)] = rounded(spec.output, out);
  }
  Result result;
  result.prediction = values[static_cast<std::size_t>(graph.nodes.back().output)].to(at::kDouble);
  std::vector<at::Tensor> gradients(graph.values.size());
  const int last = graph.nodes.back().output;
  gradients[static_cast<std::size_t>(last)] =
      rounded(last, output_gradient.to(compute).view(result.prediction.sizes()).clone());
  for (std::size_t n = graph.nodes.size(); n-- > 0;) {
    const auto& spec = graph.nodes[n];
    BackwardArguments arguments;
    for (std::size_t i = 0; i < spec.inputs.size(); ++i) {
      const auto input_value = static_cast<std::size_t>(spec.inputs[i]);
      const bool pinned = i < spec.pins_inputs.size() && spec.pins_inputs[i];
      arguments.inputs.push_back(pinned ? values[input_value] : at::Tensor());
      arguments.wanted.push_back(graph.values[input_value].differentiable);
    }
    const auto output = static_cast<std::size_t>(spec.output);
    if (spec.pins_output) arguments.output = values[output];
    arguments.output_gradient = gradients[output].clone();
    arguments.parameters = gather(p, spec.parameters);
    for (const int parameter : spec.parameters) {
      const auto at = static_cast<std::size_t>(parameter);
      arguments.parameter_gradients.push_back({parameter_gradients[at], written[at]});
      written[at] = true;
    }
    arguments.add_to.resize(spec.inputs.size());
    for (std::size_t i = 0; i < spec.inputs.size(); ++i) {
      arguments.overwrite.push_back(!spec.overwrites_gradient.empty() &&
                                    spec.overwrites_gradient[i]);
    }
    arguments.record = &records[n];
    const auto made = model.nodes[n]->backward(context, arguments);
    for (std::size_t i = 0; i < spec.inputs.size(); ++i) {
      if (!arguments.wanted[i]) continue;
      const bool same = made[i].data_ptr() == arguments.output_gradient.data_ptr();
      EXPECT_EQ(same, spec.gradient_aliases[i] || arguments.overwrite[i]) << spec.name;
      at::Tensor& gradient = gradients[static_cast<std::size_t>(spec.inputs[i])];
      const auto& value = graph.values[static_cast<std::size_t>(spec.inputs[i])];
      const bool aliases = spec.gradient_aliases[i];  // and was rounded before
      const at::Tensor shaped =
          aliases ? made[i].view(value.shape) : rounded(spec.inputs[i], made[i].view(value.shape));
      gradient = gradient.defined() ? rounded(spec.inputs[i], gradient + shaped) : shaped;
    }
  }
  for (std::size_t k = 0; k < graph.parameters.size(); ++k) {
    result.gradients[graph.parameters[k].name] =
        parameter_gradients[k].view(graph.parameters[k].shape).to(at::kDouble);
  }
  return result;
}

at::Tensor input_of(const FieldShape& shape, std::int64_t batch) {
  return numbers(batch * shape.input_channels * shape.count(), 500);
}
at::Tensor output_gradient_of(const FieldShape& shape, std::int64_t batch) {
  return numbers(batch * shape.target_channels * shape.count(), 501);
}

// Norm and projections, errors relative to the norm; or to `largest`, of all gradients, where a
// gradient is zero but for rounding (of a bias before an instance norm).
void expect_summary(const at::Tensor& tensor, const nlohmann::json& wanted, double largest,
                    double tolerance, const std::string& what) {
  const at::Tensor flat = tensor.reshape({-1});
  const double own = wanted.at("norm");
  const double norm = own > 1e-9 * largest ? own : largest;
  EXPECT_NEAR(flat.norm().item<double>(), own, tolerance * norm) << what;
  for (std::size_t k = 0; k < wanted.at("projections").size(); ++k) {
    const double projection = (flat * numbers(flat.numel(), 900 + k)).sum().item<double>();
    EXPECT_NEAR(projection, wanted.at("projections")[k].get<double>(), tolerance * norm) << what;
  }
}

Model model_of(const nlohmann::json& item, Precision precision) {
  Declaration declaration;
  declaration.precision = precision;
  declaration.threads = 2;
  return make_field_predictor(operator_keys(item), operator_shape(item), item.at("batch"),
                              declaration);
}

void check_all(Precision precision, double tolerance) {
  for (const auto& item : operator_reference().at("cases")) {
    SCOPED_TRACE(item.at("name").get<std::string>() + " " + precision_name(precision));
    const FieldShape shape = operator_shape(item);
    const std::int64_t batch = item.at("batch");
    const Model model = model_of(item, precision);
    ASSERT_EQ(model.graph.parameters.size(), item.at("parameters").size());
    for (const auto& spec : model.graph.parameters)
      ASSERT_EQ(item.at("parameters").at(spec.name), nlohmann::json(spec.shape)) << spec.name;
    const Result result = run_nodes(model, precision, parameters_of(model), input_of(shape, batch),
                                    output_gradient_of(shape, batch));
    expect_summary(result.prediction, item.at("prediction"), 0, tolerance, "prediction");
    double largest = 0;
    for (const auto& gradient : item.at("gradients"))
      largest = std::max(largest, gradient.at("norm").get<double>());
    for (const auto& [name, gradient] : result.gradients)
      expect_summary(gradient, item.at("gradients").at(name), largest, tolerance, name);
  }
}

TEST(Operators, EqualPyTorchInFloat64) {
  check_all(Precision::Float64, 1e-11);
}
TEST(Operators, EqualPyTorchInFloat32) {
  check_all(Precision::Float32, 1e-5);
}

// Weights are rounded too, and norms divide by what is small: some gradients are off by a third.
// So they are held to float64, by what rounding does to each.
TEST(Operators, AreOffByRoundingInBFloat16) {
  for (const auto& item : operator_reference().at("cases")) {
    SCOPED_TRACE(item.at("name").get<std::string>());
    const FieldShape shape = operator_shape(item);
    const std::int64_t batch = item.at("batch");
    const Model exact_model = model_of(item, Precision::Float64);
    const Model model = model_of(item, Precision::BFloat16);
    ASSERT_EQ(model.graph.values.size(), exact_model.graph.values.size());
    const auto run = [&](const Model& which, Precision precision, Roundings* roundings) {
      const Result result =
          run_nodes(which, precision, parameters_of(model), input_of(shape, batch),
                    output_gradient_of(shape, batch), roundings);
      Named all = result.gradients;
      all["prediction"] = result.prediction;
      return all;
    };
    const Named exact = run(exact_model, Precision::Float64, nullptr);
    ErrorsOfRounding errors;
    for (int seed = 0; seed < ErrorsOfRounding::runs; ++seed) {
      Roundings roundings(model, Precision::BFloat16, static_cast<std::uint64_t>(seed));
      errors.add(run(exact_model, Precision::Float64, &roundings), exact);
    }
    errors.check(run(model, Precision::BFloat16, nullptr), exact);
  }
}

// The slope along a direction in all parameters, by a central difference.
TEST(Operators, GradientsAreSlopes) {
  for (const auto& item : operator_reference().at("cases")) {
    SCOPED_TRACE(item.at("name").get<std::string>());
    Declaration declaration;
    declaration.precision = Precision::Float64;
    const FieldShape shape = operator_shape(item);
    const std::int64_t batch = item.at("batch");
    const Model model = make_field_predictor(operator_keys(item), shape, batch, declaration);
    const Named parameters = parameters_of(model);
    const at::Tensor input = input_of(shape, batch);
    const at::Tensor given = output_gradient_of(shape, batch);
    const double step = 1e-6;
    double slope = 0;
    const Result at_point = run_nodes(model, Precision::Float64, parameters, input, given);
    double sums[2];
    for (const int side : {0, 1}) {
      Named moved;
      std::uint64_t salt = 700;
      for (const auto& [name, value] : parameters) {
        const at::Tensor direction = numbers(value.numel(), ++salt).view(value.sizes());
        moved[name] = value + (side == 0 ? -step : step) * direction;
        if (side == 0) slope += (at_point.gradients.at(name) * direction).sum().item<double>();
      }
      const Result result = run_nodes(model, Precision::Float64, moved, input, given);
      sums[side] = (result.prediction.reshape({-1}) * given).sum().item<double>();
    }
    // ReLU and shrinkage have corners between the two points now and then.
    EXPECT_NEAR((sums[1] - sums[0]) / (2 * step), slope, 2e-6 * std::abs(slope) + 1e-6);
  }
}

TEST(Operators, EqualFromRunToRun) {
  for (const auto& item : operator_reference().at("cases")) {
    const FieldShape shape = operator_shape(item);
    const Model model = make_field_predictor(operator_keys(item), shape, 2, Declaration());
    const auto run = [&] {
      return run_nodes(model, Precision::Float32, parameters_of(model), input_of(shape, 2),
                       output_gradient_of(shape, 2));
    };
    const Result first = run();
    const Result second = run();
    EXPECT_TRUE(at::equal(first.prediction, second.prediction));
    for (const auto& [name, gradient] : first.gradients)
      EXPECT_TRUE(at::equal(gradient, second.gradients.at(name))) << name;
  }
}

// What nodes declare, against what the counting allocator sees.
TEST(Operators, DeclaredBytesAreTheMeasuredOnes) {
  for (const Precision precision : {Precision::Float32, Precision::Float64, Precision::BFloat16}) {
    for (const int threads : {1, 2}) {
      garonne::test::use_threads(threads);
      for (const auto& item : operator_reference().at("cases")) {
        SCOPED_TRACE(item.at("name").get<std::string>() + " " + precision_name(precision) + " " +
                     std::to_string(threads) + " threads");
        Declaration declaration;
        declaration.precision = precision;
        declaration.threads = threads;
        const Model model = make_field_predictor(operator_keys(item), operator_shape(item),
                                                 item.at("batch"), declaration);
        plan::CostTable table;
        exec::profile_model(Queue(), model, declaration, table, [](int, int) {});
        for (const auto& node : model.graph.nodes) {
          SCOPED_TRACE(node.name);
          const plan::CostRow& row = table.rows.at(node.cost_key);
          // Products in bfloat16 declare a bound of their workspace.
          garonne::test::expect_declared_bytes(
              row, model, declaration, node,
              precision == Precision::BFloat16 &&
                  (node.kind == "linear" || node.kind == "field_lift"));
        }
      }
    }
  }
  garonne::test::use_threads(2);
}

struct Count {
  std::int64_t complex_once;
  std::int64_t reals;
};
Count count_of(const Model& model) {
  Count count{0, 0};
  for (const auto& parameter : model.graph.parameters) {
    count.reals += parameter.elements;
    const bool is_complex = parameter.name.find("spectral.weight") != std::string::npos;
    count.complex_once += is_complex ? parameter.elements / 2 : parameter.elements;
  }
  return count;
}

// The library's example of 32 channels and four layers.
TEST(Operators, CountOfParametersOfTheSmallExample) {
  RunConfig::Model keys;
  keys.kind = "sfno";
  keys.block = "torch-harmonics";
  keys.hidden = 32;
  keys.layers = 4;
  keys.scale_factor = 2;
  FieldShape shape;
  shape.input_channels = shape.target_channels = 3;
  shape.points = {64, 128};
  shape.grid = "legendre-gauss";
  const Count count = count_of(make_field_predictor(keys, shape, 1, Declaration()));
  EXPECT_EQ(count.complex_once, 148160);
  EXPECT_EQ(count.reals, 279232);
}

// makani's network for 73 variables and 3 constant ones at a quarter of a degree; nothing is
// allocated.
TEST(Operators, CountOfParametersAtAQuarterOfADegree) {
  RunConfig::Model keys;
  keys.kind = "sfno";
  keys.hidden = 384;
  keys.layers = 8;
  keys.scale_factor = 3;
  FieldShape shape;
  shape.input_channels = 77;
  shape.target_channels = 73;
  shape.points = {721, 1440};
  shape.grid = "equiangular";
  const Model model = make_field_predictor(keys, shape, 1, Declaration());
  const Count count = count_of(model);
  // Spectral: 8 · 384² · 240 complex. Each block: MLP, skip and two norms; then encoder, decoder
  // and the skip over all.
  const std::int64_t spectral = 8 * 384 * 384 * 240;
  const std::int64_t block = 2 * 384 * 768 + 768 + 384 + 384 * 384 + 384 + 4 * 384;
  const std::int64_t ends = 77 * 384 + 384 + 384 * 384 + 384 * 384 + 384 + 384 * 73 + 77 * 73;
  EXPECT_EQ(count.complex_once, spectral + 8 * block + ends);
  EXPECT_NEAR(static_cast<double>(count.complex_once), 289e6, 0.5e6);
  EXPECT_NEAR(static_cast<double>(count.reals), 572e6, 0.6e6);
  // The last block runs on the full grid and is cut into nodes that can be recomputed apart.
  std::int64_t nodes = 0;
  for (const auto& node : model.graph.nodes) nodes += node.name.rfind("block.7.", 0) == 0 ? 1 : 0;
  EXPECT_GE(nodes, 10);
}

TEST(Operators, CountOfParametersOfFourCastNet) {
  RunConfig::Model keys;
  keys.kind = "afno";
  keys.hidden = 768;
  keys.layers = 12;
  FieldShape shape;
  shape.input_channels = shape.target_channels = 20;
  shape.points = {720, 1440};
  shape.grid = "equiangular";
  const Model model = make_field_predictor(keys, shape, 1, Declaration());
  EXPECT_EQ(count_of(model).reals, 74690304);
}

TEST(Operators, RefuseWhatTheyCannotDo) {
  FieldShape sphere;
  sphere.input_channels = sphere.target_channels = 2;
  sphere.points = {12, 20};
  sphere.grid = "equiangular";
  const auto refused = [&](const FieldShape& shape, const auto& change) {
    RunConfig::Model keys;
    keys.hidden = 12;
    keys.layers = 1;
    change(keys);
    EXPECT_THROW(make_field_predictor(keys, shape, 1, Declaration()), ConfigError);
  };
  FieldShape box = sphere;
  box.grid = "box";
  refused(box, [](auto& keys) { keys.kind = "sfno"; });
  refused(sphere, [](auto& keys) { keys.kind = "sfno", keys.block = "li"; });
  refused(sphere, [](auto& keys) { keys.kind = "sfno", keys.norm = "layer"; });
  refused(sphere, [](auto& keys) { keys.kind = "sfno", keys.scale_factor = 12; });
  refused(sphere, [](auto& keys) { keys.kind = "sfno", keys.patch = 2; });
  refused(sphere, [](auto& keys) { keys.kind = "afno", keys.patch = 3; });
  refused(sphere, [](auto& keys) { keys.kind = "afno", keys.patch = 2, keys.spectral_blocks = 5; });
  refused(sphere, [](auto& keys) {
    keys.kind = "afno", keys.patch = 2, keys.spectral_blocks = 4, keys.hard_thresholding = 0.01;
  });
  FieldShape line = sphere;
  line.points = {64};
  refused(line, [](auto& keys) { keys.kind = "afno"; });
}

}  // namespace
}  // namespace garonne::nn
