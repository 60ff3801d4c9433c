// Kernels that treat every element alike; private to this room.
#pragma once

#include "kernels/device/team.hpp"
#include "kernels/element.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace garonne::kernels::device {

// Elements that fill the 16 bytes which a thread loads or stores at once.
template <typename T>
inline constexpr int pack = 16 / static_cast<int>(sizeof(T));

// What a thread has in its registers.
template <typename T, int count>
using Values = T[static_cast<std::size_t>(count)];

struct alignas(16) Bytes16 {
  std::uint32_t words[4];
};

// Elements [0, count) at `place`, in one access for each 16 bytes where the address allows it.
template <int count, typename T>
KOKKOS_FUNCTION void read(const T* place, Values<Accumulation<T>, count>& values) {
  constexpr int piece = pack<T>;
  if constexpr (count % piece == 0) {
    if (reinterpret_cast<std::uintptr_t>(place) % 16 == 0) {
      for (int first = 0; first < count; first += piece) {
        Values<T, piece> elements;
#ifdef __CUDA_ARCH__
        const Bytes16 bytes = *reinterpret_cast<const Bytes16*>(place + first);
        memcpy(elements, &bytes, 16);
#else
        std::memcpy(elements, place + first, 16);
#endif
        for (int i = 0; i < piece; ++i) values[first + i] = load(elements[i]);
      }
      return;
    }
  }
  for (int i = 0; i < count; ++i) values[i] = load(place[i]);
}

template <int count, typename T>
KOKKOS_FUNCTION void write(T* place, const Values<Accumulation<T>, count>& values) {
  constexpr int piece = pack<T>;
  if constexpr (count % piece == 0) {
    if (reinterpret_cast<std::uintptr_t>(place) % 16 == 0) {
      for (int first = 0; first < count; first += piece) {
        Values<T, piece> elements;
        for (int i = 0; i < piece; ++i) store(elements[i], values[first + i]);
#ifdef __CUDA_ARCH__
        Bytes16 bytes;
        memcpy(&bytes, elements, 16);
        *reinterpret_cast<Bytes16*>(place + first) = bytes;
#else
        std::memcpy(place + first, elements, 16);
#endif
      }
      return;
    }
  }
  for (int i = 0; i < count; ++i) store(place[i], values[i]);
}

template <int width, typename Function>
struct Elementwise {
  Function function;
  std::int64_t n;

  template <typename Team>
  KOKKOS_FUNCTION void operator()(const Team& team, std::int64_t block) const {
    team.each(Team::threads, [&](int thread) {
      const std::int64_t first = (block * Team::threads + thread) * width;
      if (first + width <= n) {
        function.template at<width>(first);
      } else {
        for (std::int64_t i = first; i < n; ++i) function.template at<1>(i);
      }
    });
  }
};

// function.at<width>(i) for i = 0, width, …: elements [i, i + width), which one thread has; what is
// left over as at<1>(i). Not one element is met twice.
template <int width, typename Space, typename Function>
void elementwise(const Space& space, std::int64_t n, const Function& function) {
  constexpr int groups = 8;
  constexpr std::int64_t elements = groups * lanes_of_group * width;
  for_teams<groups>(space, (n + elements - 1) / elements, 0,
                    Elementwise<width, Function>{function, n});
}

}  // namespace garonne::kernels::device
