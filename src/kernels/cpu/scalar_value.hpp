// What a Scalar is on the host; private to this room.
#pragma once

#include "kernels/scalar.hpp"

namespace garonne::kernels {

inline double value_of(const Scalar& scalar) {
  return scalar.place == nullptr ? scalar.value : *scalar.place;
}

}  // namespace garonne::kernels
