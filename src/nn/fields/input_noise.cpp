#include "nn/fields/input_noise.hpp"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include "base/philox.hpp"
#include "kernels/initialise.hpp"
#include "nn/fields/row_runs.hpp"

namespace garonne::nn {

InputNoise::InputNoise(const FieldShape& shape, const FieldWindow& window)
    : members_(shape.members), points_(shape.count()), rows_(shape.rows) {
  for (const auto& part : window.parts) {
    if (part.channels_first) deviation_ = shape.noise;
  }
}

void InputNoise::add(const Context& context, std::int64_t first_channel,
                     const at::Tensor& field) const {
  if (deviation_ <= 0 || (!context.training && members_ == 1)) return;
  at::Tensor plane = at::empty({points_}, field.options());
  // Elements are those of the whole field. Rows that follow each other are one range of them.
  const std::int64_t slots = rows_.cut() ? static_cast<std::int64_t>(rows_.slots.size()) : 1;
  const std::int64_t in_slot = points_ / slots;
  const std::int64_t whole = rows_.cut() ? rows_.whole * in_slot : points_;
  const std::vector<RowRun> runs =
      rows_.cut() ? runs_of(rows_) : std::vector<RowRun>{{.slot = 0, .row = 0, .count = 1}};
  if (rows_.cut()) plane.zero_();
  for (std::int64_t one = 0; one < field.size(0); ++one) {
    const auto member = static_cast<std::uint64_t>(one % members_);
    const PhiloxKey key = philox_key(context.seed, "input.noise", member);
    for (std::int64_t channel = 0; channel < field.size(1); ++channel) {
      for (const RowRun& run : runs) {
        // Where kernels read the step they read the sample, too: it is another one's in others.
        const std::int64_t* const number = context.samples + one / members_;
        const bool by_place = context.step_place != nullptr;
        kernels::fill_normal(context.queue, context.element_type(),
                             plane.narrow(0, run.slot * in_slot, run.count * in_slot).data_ptr(),
                             run.count * in_slot, key, deviation_,
                             (first_channel + channel) * whole + run.row * in_slot, context.step,
                             static_cast<std::uint64_t>(*number), context.step_place,
                             by_place ? number : nullptr);
      }
      at::Tensor destination = field.select(0, one).select(0, channel);
      destination.add_(plane.view(destination.sizes()));
    }
  }
}

std::string InputNoise::key() const {
  if (deviation_ <= 0) return "";
  return members_ == 1 ? " noise" : fmt::format(" noise of {} members", members_);
}

std::int64_t InputNoise::transient_bytes(const Declaration& declaration) const {
  return deviation_ > 0 ? declaration.tensor(points_) : 0;
}

}  // namespace garonne::nn
