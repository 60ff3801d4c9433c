// From a place and an element type to Kokkos' execution space and a C++ type; private to this room.
#pragma once

#include "base/error.hpp"
#include "kernels/device/place.hpp"
#include "kernels/element_type.hpp"
#include "kernels/with_type.hpp"

#include <Kokkos_Core.hpp>

#include <string>

namespace garonne::kernels::device {

// use(space) with the execution space of `place`; InternalError where this build has no kernels for
// it.
template <typename Use>
void with_space(const Place& place, const Use& use) {
#ifdef KOKKOS_ENABLE_CUDA
  if (place.space == Space::Cuda) return use(*static_cast<const Kokkos::Cuda*>(place.instance));
#else
  if (place.space == Space::Serial) return use(Kokkos::Serial());
  if (place.space == Space::OpenMp) return use(Kokkos::OpenMP());
#endif
  throw InternalError("this build has no device kernels for " +
                      std::string(to_string(place.space)));
}

// use(T{}, space) with the T of `type`.
template <typename Use>
void with_type_and_space(const Place& place, ElementType type, const Use& use) {
  with_space(place, [&](const auto& space) {
    with_type(type, [&]<typename T>(T example) { use(example, space); });
  });
}

// The same for a kernel that has no BFloat16; `what` names it in the InternalError.
template <typename Use>
void with_wide_type_and_space(const Place& place, ElementType type, const char* what,
                              const Use& use) {
  expect(type != ElementType::BFloat16, std::string(what) + " wants Float32 or Float64");
  with_space(place, [&](const auto& space) {
    if (type == ElementType::Float64) {
      use(double{}, space);
    } else {
      use(float{}, space);
    }
  });
}

}  // namespace garonne::kernels::device
