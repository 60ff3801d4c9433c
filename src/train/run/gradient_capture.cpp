#include "train/run/gradient_capture.hpp"

#include <ATen/Functions.h>

#include "base/error.hpp"
#include "nn/element_type.hpp"

namespace garonne::train {

GradientCapture::GradientCapture(const nn::Model& model, const exec::ModelState& state) {
  gradients_.precision = state.precision;
  gradients_.in_shards = state.in_shards;
  const auto type = nn::state_scalar_type(state.precision);
  place_of_.assign(model.graph.parameters.size(), -1);
  for (const auto& parameter : state.parameters) {
    place_of_.at(static_cast<std::size_t>(parameter.index)) =
        static_cast<int>(gradients_.parameters.size());
    exec::ParameterState& gradient = gradients_.parameters.emplace_back();
    gradient.index = parameter.index;
    gradient.first = parameter.first;
    gradient.parameter = at::zeros(parameter.trained().sizes(), type);
  }
}

void GradientCapture::take(int parameter, const at::Tensor& gradient) {
  if (finished_) return;
  const int place = place_of_.at(static_cast<std::size_t>(parameter));
  expect(place >= 0, "a gradient of which nothing is here");
  const at::Tensor& kept = gradients_.parameters[static_cast<std::size_t>(place)].parameter;
  expect(kept.numel() == gradient.numel(), "a gradient of another size than its parameter");
  kept.view({-1}).copy_(gradient);
}

}  // namespace garonne::train
