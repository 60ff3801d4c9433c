#include "nn/input_noise.hpp"

#include <ATen/Functions.h>

#include "base/philox.hpp"
#include "kernels/initialise.hpp"

namespace garonne::nn {

InputNoise::InputNoise(const FieldShape& shape, const FieldWindow& window)
    : points_(shape.count()) {
  for (const auto& part : window.parts) {
    if (part.channels_first) deviation_ = shape.noise;
  }
}

void InputNoise::add(const Context& context, std::int64_t first_channel,
                     const at::Tensor& field) const {
  if (deviation_ <= 0 || !context.training) return;
  const PhiloxKey key = philox_key(context.seed, "input.noise");
  at::Tensor plane = at::empty({points_}, field.options());
  for (std::int64_t sample = 0; sample < field.size(0); ++sample) {
    for (std::int64_t channel = 0; channel < field.size(1); ++channel) {
      kernels::fill_normal(context.element_type(), plane.data_ptr(), points_, key, deviation_,
                           (first_channel + channel) * points_, context.step,
                           static_cast<std::uint64_t>(context.samples[sample]));
      at::Tensor destination = field.select(0, sample).select(0, channel);
      destination.add_(plane.view(destination.sizes()));
    }
  }
}

std::int64_t InputNoise::transient_bytes(const Declaration& declaration) const {
  return deviation_ > 0 ? declaration.tensor(points_) : 0;
}

}  // namespace garonne::nn
