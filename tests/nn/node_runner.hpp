// Runs a model node by node as the executor would: every record kept, gradients added in the
// reverse order of the nodes.
#pragma once

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "nn/element_type.hpp"
#include "nn/gemm/product.hpp"
#include "nn/model.hpp"
#include "nn/roundings.hpp"

namespace garonne::test {

using Named = std::map<std::string, at::Tensor>;

struct ModelRun {
  double loss = 0;
  Named gradients;  // float64, in the shapes of the parameters
  std::vector<at::Tensor> values;
};

inline double relative_error(const at::Tensor& got, const at::Tensor& wanted) {
  const double error = (got - wanted).norm().item<double>();
  const double size = wanted.norm().item<double>();
  return std::isfinite(error) ? error / (size + 1e-30) : std::numeric_limits<double>::infinity();
}

// What random numbers come from, and which products are used.
struct RunSource {
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  std::int64_t first_sample = 7;
  nn::Products products;
  Roundings* roundings = nullptr;  // where set, of every value, parameter and gradient
};

// Of a model's parameters, float64: values that every precision represents, so that all start from
// the same point.
inline Named random_parameters(const nn::Model& model, std::uint64_t seed = 17) {
  at::manual_seed(seed);
  Named parameters;
  for (const auto& spec : model.graph.parameters) {
    at::Tensor tensor = at::randn(spec.shape, at::kDouble) * 0.3;
    if (spec.name.find("norm.weight") != std::string::npos) tensor = tensor + 1;
    parameters[spec.name] = tensor.to(at::kBFloat16).to(at::kDouble);
  }
  return parameters;
}

// `loaded`: by name, in any type of numbers; fields are rounded to the compute type.
// With `records_apart` the forward that is kept is a second one, as where a plan runs it again.
inline ModelRun run_model(const nn::Model& model, Precision precision, const Named& parameters,
                          const Named& loaded, double loss_scale = 1, bool records_apart = false,
                          const RunSource& source = {}) {
  const at::NoGradGuard no_gradients;
  const auto& graph = model.graph;
  std::vector<std::int64_t> samples(static_cast<std::size_t>(model.batch));
  std::iota(samples.begin(), samples.end(), source.first_sample);
  nn::Context context;
  context.precision = precision;
  context.seed = source.seed;
  context.step = source.step;
  context.samples = samples.data();
  context.batch = model.batch;
  context.products = &source.products;
  const auto rounded = [&](std::size_t value, const at::Tensor& exact) {
    return source.roundings ? source.roundings->value(value, exact) : exact;
  };
  const auto compute = nn::compute_scalar_type(precision);
  std::vector<at::Tensor> p;
  std::vector<at::Tensor> targets;
  std::vector<bool> written(graph.parameters.size(), false);
  for (const auto& spec : graph.parameters) {
    p.push_back(parameters.at(spec.name).to(compute));
    if (source.roundings) p.back() = source.roundings->parameter(p.back());
    // In a bucket at an odd place, as behind a parameter of one number; what is there before the
    // first contribution must not matter.
    targets.push_back(at::full({spec.elements + 1}, std::nan(""),
                               at::TensorOptions().dtype(nn::state_scalar_type(precision)))
                          .narrow(0, 1, spec.elements));
  }
  ModelRun run;
  run.values.resize(graph.values.size());
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    if (!graph.values[v].loaded) continue;
    run.values[v] = rounded(v, loaded.at(graph.values[v].name)
                                   .to(nn::scalar_type_of(graph.values[v].type))
                                   .reshape(graph.values[v].shape)
                                   .contiguous());
  }
  const auto gather = [](const std::vector<at::Tensor>& from, const std::vector<int>& which) {
    std::vector<at::Tensor> tensors;
    for (const int i : which) tensors.push_back(from[static_cast<std::size_t>(i)]);
    return tensors;
  };
  std::vector<nn::Record> records(graph.nodes.size());
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    const auto& spec = graph.nodes[n];
    const auto inputs = gather(run.values, spec.inputs);
    const auto used = gather(p, spec.parameters);
    nn::Record* record = graph.has_backward(spec) ? &records[n] : nullptr;
    at::Tensor& output = run.values[static_cast<std::size_t>(spec.output)];
    if (!records_apart) {
      output = model.nodes[n]->forward(context, inputs, used, record);
    } else {
      output = model.nodes[n]->forward(context, inputs, used, nullptr);
      const at::Tensor again = model.nodes[n]->forward(context, inputs, used, record);
      EXPECT_TRUE(at::equal(output, again)) << spec.name << " changes when it is run again";
    }
    const auto& declared = graph.values[static_cast<std::size_t>(spec.output)];
    EXPECT_EQ(output.sizes(), declared.shape) << spec.name;
    EXPECT_EQ(output.scalar_type(), nn::scalar_type_of(declared.type)) << spec.name;
    EXPECT_TRUE(output.is_contiguous()) << spec.name;
    EXPECT_EQ(records[n].slots.size(), spec.private_slot_bytes.size()) << spec.name;
    output = rounded(static_cast<std::size_t>(spec.output), output);
  }
  if (graph.loss < 0) return run;
  run.loss = run.values[static_cast<std::size_t>(graph.loss)].item<double>();
  std::vector<at::Tensor> gradients(graph.values.size());
  for (std::size_t n = graph.nodes.size(); n-- > 0;) {
    const auto& spec = graph.nodes[n];
    if (!graph.has_backward(spec)) continue;
    nn::BackwardArguments arguments;
    const auto pinned = [&](int value) {
      return std::find(spec.pinned_values.begin(), spec.pinned_values.end(), value) !=
             spec.pinned_values.end();
    };
    for (const int input : spec.inputs) {
      const auto at = static_cast<std::size_t>(input);
      arguments.inputs.push_back(pinned(input) ? run.values[at] : at::Tensor());
      arguments.wanted.push_back(graph.values[at].differentiable);
    }
    if (pinned(spec.output)) arguments.output = run.values[static_cast<std::size_t>(spec.output)];
    if (spec.output != graph.loss)
      arguments.output_gradient = gradients[static_cast<std::size_t>(spec.output)];
    arguments.parameters = gather(p, spec.parameters);
    for (const int parameter : spec.parameters) {
      const auto at = static_cast<std::size_t>(parameter);
      arguments.parameter_gradients.push_back({targets[at], written[at]});
      written[at] = true;
    }
    arguments.add_to.resize(spec.inputs.size());
    arguments.overwrite.assign(spec.inputs.size(), false);
    arguments.record = &records[n];
    arguments.loss_scale = loss_scale;
    // Added in place where the node offers it, so that this path is tested too.
    for (std::size_t i = 0; i < spec.inputs.size(); ++i) {
      const at::Tensor& existing = gradients[static_cast<std::size_t>(spec.inputs[i])];
      if (existing.defined() && !spec.adds_in_place.empty() && spec.adds_in_place[i])
        arguments.add_to[i] = existing.clone();
    }
    const auto made = model.nodes[n]->backward(context, arguments);
    for (std::size_t i = 0; i < spec.inputs.size(); ++i) {
      if (!arguments.wanted[i]) continue;
      const auto to = static_cast<std::size_t>(spec.inputs[i]);
      at::Tensor& gradient = gradients[to];
      const auto& value = graph.values[to];
      EXPECT_EQ(made[i].scalar_type(), nn::scalar_type_of(value.type)) << spec.name;
      if (arguments.output_gradient.defined()) {
        EXPECT_EQ(made[i].data_ptr() == arguments.output_gradient.data_ptr(),
                  spec.gradient_aliases[i])
            << spec.name << " and its declared alias";
      }
      const bool sum = gradient.defined();
      // And was rounded before.
      const bool same = arguments.output_gradient.defined() && spec.gradient_aliases[i];
      const at::Tensor shaped = made[i].view(value.shape);
      gradient = sum && !arguments.add_to[i].defined()
                     ? gradient + (same ? shaped : rounded(to, shaped))
                     : shaped;
      if (sum || !same) gradient = rounded(to, gradient);
    }
  }
  for (std::size_t k = 0; k < graph.parameters.size(); ++k) {
    run.gradients[graph.parameters[k].name] =
        targets[k].reshape(graph.parameters[k].shape).to(at::kDouble);
  }
  return run;
}

// Loss and gradients in a precision are off from those in float64 by no more than what rounding
// does. `make` gives the model in a precision.
template <typename MakeModel>
void expect_off_by_rounding(const MakeModel& make, Precision precision, const Named& parameters,
                            const Named& loaded) {
  const nn::Model exact_model = make(Precision::Float64);
  const nn::Model model = make(precision);
  ASSERT_EQ(model.graph.values.size(), exact_model.graph.values.size());
  const auto run = [&](const nn::Model& which, Precision of, Roundings* roundings) {
    RunSource source;
    source.roundings = roundings;
    const ModelRun result = run_model(which, of, parameters, loaded, 1, false, source);
    Named all = result.gradients;
    all["loss"] = at::scalar_tensor(result.loss, at::kDouble);
    return all;
  };
  const Named exact = run(exact_model, Precision::Float64, nullptr);
  ErrorsOfRounding errors;
  for (int seed = 0; seed < ErrorsOfRounding::runs; ++seed) {
    Roundings roundings(model, precision, static_cast<std::uint64_t>(seed));
    errors.add(run(exact_model, Precision::Float64, &roundings), exact);
  }
  errors.check(run(model, precision, nullptr), exact);
}

}  // namespace garonne::test
