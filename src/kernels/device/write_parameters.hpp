// How updates write what they have updated; private to this room.
#pragma once

#include "kernels/device/elementwise.hpp"

namespace garonne::kernels::device {

// Elements [first, first + count) of the parameters, and of their copy where that is not null.
template <int count, typename T>
KOKKOS_FUNCTION void write_parameters(T* parameter, BFloat16* copy, std::int64_t first,
                                      const Values<T, count>& updated) {
  write<count>(parameter + first, updated);
  if (copy == nullptr) return;
  Values<float, count> rounded;
  for (int i = 0; i < count; ++i) rounded[i] = static_cast<float>(updated[i]);
  write<count>(copy + first, rounded);
}

}  // namespace garonne::kernels::device
