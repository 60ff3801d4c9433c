// What kernels read where it is, on the host; private to this room.
#pragma once

#include "kernels/dropout.hpp"
#include "kernels/scalar.hpp"

namespace garonne::kernels {

inline double value_of(const Scalar& scalar) {
  return scalar.place == nullptr ? scalar.value : *scalar.place;
}

// With the step by value.
inline Dropout value_of(const Dropout& dropout) {
  Dropout value = dropout;
  if (dropout.step_place != nullptr) value.step = *dropout.step_place;
  return value;
}

}  // namespace garonne::kernels
