// Numbers that tests of models on fields put into parameters and fields.
#pragma once

#include <ATen/ATen.h>

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

}  // namespace garonne::test
