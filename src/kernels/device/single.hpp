// Kernels of a single thread; private to this room.
#pragma once

#include "kernels/device/team.hpp"
#include "kernels/scalar.hpp"

#include <cstdint>

namespace garonne::kernels::device {

KOKKOS_INLINE_FUNCTION double value_of(const Scalar& scalar) {
  return scalar.place == nullptr ? scalar.value : *scalar.place;
}

template <typename Function>
struct Single {
  Function function;

  template <typename Team>
  KOKKOS_FUNCTION void operator()(const Team& team, std::int64_t) const {
    team.each(1, [&](int) { function(); });
  }
};

// function(), once.
template <typename Space, typename Function>
void single(const Space& space, const Function& function) {
  for_teams<1>(space, 1, 0, Single<Function>{function});
}

}  // namespace garonne::kernels::device
