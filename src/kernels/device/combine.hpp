// One array put or added into another; private to this room.
#pragma once

#include "kernels/device/elementwise.hpp"

#include <cstdint>

namespace garonne::kernels::device {

// destination = (or +=) source, added in the accumulation type of both and rounded once.
template <typename From, typename To>
struct Combine {
  const From* source;
  To* destination;
  bool accumulate;

  template <int count>
  KOKKOS_FUNCTION void at(std::int64_t first) const {
    Values<Accumulation<From>, count> values;
    read<count>(source + first, values);
    Values<Accumulation<To>, count> results;
    if (accumulate) {
      read<count>(destination + first, results);
      for (int i = 0; i < count; ++i) results[i] = results[i] + values[i];
    } else {
      for (int i = 0; i < count; ++i) results[i] = values[i];
    }
    write<count>(destination + first, results);
  }
};

template <typename From, typename To, typename Space>
void combine(const Space& space, const void* source, void* destination, std::int64_t n,
             bool accumulate) {
  constexpr int width = pack < From >> pack<To> ? pack<From> : pack<To>;
  elementwise<width>(space, n,
                     Combine<From, To>{static_cast<const From*>(source),
                                       static_cast<To*>(destination), accumulate});
}

}  // namespace garonne::kernels::device
