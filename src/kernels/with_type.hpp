// From an element type to a C++ type, for loops and kernels that are templates over it; private to
// this room.
#pragma once

#include "kernels/element.hpp"
#include "kernels/element_type.hpp"

namespace garonne::kernels {

// use(T{}) with the T of `type`.
template <typename Use>
void with_type(ElementType type, const Use& use) {
  switch (type) {
    case ElementType::Float32:
      return use(float{});
    case ElementType::Float64:
      return use(double{});
    case ElementType::BFloat16:
      return use(BFloat16{});
  }
}

// place = value, rounded to its type (to BFloat16 by way of float).
template <typename T>
GARONNE_INLINE void store_double(T& place, double value) {
  store(place, static_cast<Accumulation<T>>(value));
}

}  // namespace garonne::kernels
