// Numbers that tests of models on fields put into parameters and fields.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "nn/fields/field_model.hpp"
#include "nn/node_runner.hpp"

namespace garonne::test {

// fourier_operators.numbers
inline at::Tensor numbers(std::int64_t which, std::int64_t count) {
  at::Tensor values = at::empty({count}, at::kDouble);
  double* data = values.data_ptr<double>();
  for (std::int64_t i = 0; i < count; ++i) {
    const double x = static_cast<double>(which + 1) * 0.7548776662466927 +
                     static_cast<double>(i + 1) * 0.5698402909980532;
    data[i] = x - std::floor(x) - 0.5;
  }
  return values;
}

inline Named made_up_parameters(const nn::Model& model) {
  Named parameters;
  std::int64_t which = 0;
  for (const auto& spec : model.graph.parameters) {
    at::Tensor values = numbers(which++, spec.elements) * 0.7;
    const std::string ending = "gate";
    if (spec.name.size() >= ending.size() &&
        spec.name.compare(spec.name.size() - ending.size(), ending.size(), ending) == 0) {
      values += 1;
    }
    parameters[spec.name] = values.view(spec.shape);
  }
  return parameters;
}

inline Named made_up_fields(const nn::FieldShape& shape, std::int64_t batch) {
  const std::int64_t points = batch * shape.count();
  const std::int64_t targets = points * shape.target_channels;
  return {{"input", numbers(501, points * shape.input_channels)},
          {"target", numbers(502, shape.rollout * targets) * 3},
          {"mask", numbers(504, (shape.push_forward + shape.rollout) * targets).gt(-0.3)}};
}

// Apart from any reference: a gradient is a slope. Expects that of the model's loss along a made-up
// direction to be what two losses, a `step` ahead and behind, say, and returns it.
inline double expect_slope(const nn::Model& model, const Named& parameters, const Named& fields,
                           double step, double tolerance) {
  const ModelRun run = run_model(model, Precision::Float64, parameters, fields);
  double slope = 0;
  Named ahead;
  Named behind;
  std::int64_t which = 700;
  for (const auto& [name, value] : parameters) {
    const at::Tensor direction = numbers(which++, value.numel()).view(value.sizes());
    slope += (run.gradients.at(name) * direction).sum().item<double>();
    ahead[name] = value + step * direction;
    behind[name] = value - step * direction;
  }
  const double measured = (run_model(model, Precision::Float64, ahead, fields).loss -
                           run_model(model, Precision::Float64, behind, fields).loss) /
                          (2 * step);
  EXPECT_NEAR(measured, slope, tolerance * std::max(1.0, std::abs(slope)));
  return slope;
}

}  // namespace garonne::test
