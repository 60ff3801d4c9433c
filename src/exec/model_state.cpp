#include "exec/model_state.hpp"

#include <ATen/Functions.h>

#include <cstddef>

#include "base/philox.hpp"
#include "kernels/convert.hpp"
#include "kernels/initialise.hpp"
#include "nn/element_type.hpp"

namespace garonne::exec {

ModelState initial_state(const nn::Model& model, Precision precision, std::uint64_t seed,
                         int optimizer_states) {
  ModelState state;
  state.precision = precision;
  const auto stored = at::TensorOptions().dtype(nn::state_scalar_type(precision));
  for (std::size_t p = 0; p < model.graph.parameters.size(); ++p) {
    const plan::ParameterSpec& spec = model.graph.parameters[p];
    const nn::Initialisation& initialisation = model.initialisations[p];
    at::Tensor trained = at::empty(spec.shape, stored);
    const nn::Box& box = model.boxes[p];
    if (initialisation.deviation > 0) {
      if (box.elements() < spec.elements) trained.zero_();
      auto* first = static_cast<std::byte*>(trained.data_ptr());
      const auto bytes = static_cast<std::int64_t>(trained.element_size());
      for (const nn::Run& run : nn::runs_of(box)) {
        kernels::fill_normal(nn::element_type_of(trained), first + run.in_box * bytes, run.elements,
                             philox_key(seed, spec.name), initialisation.deviation, run.in_global);
      }
    } else {
      trained.fill_(initialisation.constant);
    }
    ParameterState parameter;
    if (has_master(precision)) {
      parameter.master = trained;
      parameter.parameter = at::empty(spec.shape, stored.dtype(nn::compute_scalar_type(precision)));
    } else {
      parameter.parameter = trained;
    }
    for (int k = 0; k < optimizer_states; ++k)
      parameter.states.push_back(at::zeros(spec.shape, stored));
    state.parameters.push_back(std::move(parameter));
  }
  refresh_compute_copies(state);
  return state;
}

void refresh_compute_copies(ModelState& state) {
  for (auto& parameter : state.parameters) {
    if (!parameter.master.defined()) continue;
    kernels::to_bfloat16(parameter.master.const_data_ptr<float>(), parameter.parameter.data_ptr(),
                         parameter.parameter.numel());
  }
}

}  // namespace garonne::exec
