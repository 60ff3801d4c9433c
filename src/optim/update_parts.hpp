// What the optimizers take out of an update for their kernels.
#pragma once

#include <cstddef>
#include <type_traits>

#include "kernels/element_type.hpp"
#include "kernels/scalar.hpp"
#include "optim/optimizer.hpp"

namespace garonne::optim {

// Parameters, gradients and states of updates are float32 or float64.
inline kernels::ElementType update_type(const at::Tensor& values) {
  return values.scalar_type() == at::kDouble ? kernels::ElementType::Float64
                                             : kernels::ElementType::Float32;
}

// What rates() gives, as kernels take it; null where step and learning rate are taken as given.
template <typename Rates>
const Rates* rates_place(const ParameterUpdate& update) {
  static_assert(std::is_standard_layout_v<Rates> && sizeof(Rates) == 3 * sizeof(double));
  return reinterpret_cast<const Rates*>(update.rates);
}

// Of a round.
inline kernels::Scalar sums_of(const ParameterUpdate& update, std::size_t round) {
  return kernels::Scalar{.place = update.sums[round].const_data_ptr<double>()};
}

// By which rates are adapted to whole matrices; no place where they are not.
inline kernels::Scalar adapting_sums(const ParameterUpdate& update) {
  return update.matrix && !update.sums.empty() ? sums_of(update, 0) : kernels::Scalar();
}

}  // namespace garonne::optim
