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

KOKKOS_INLINE_FUNCTION bool has_packs(const void* place) {
  return reinterpret_cast<std::uintptr_t>(place) % 16 == 0;
}

// Elements that are on their way: nothing waits for them before they are unpacked, so that several
// of these take as long as one.
template <typename T, int count>
struct alignas(count * sizeof(T) % 16 == 0 ? 16 : alignof(T)) Fetched {
  T elements[static_cast<std::size_t>(count)];
};

// Whole packs at a place that has them.
template <int count, typename T>
KOKKOS_FUNCTION Fetched<T, count> fetch_packs(const T* place) {
  static_assert(count % pack<T> == 0);
  Fetched<T, count> fetched;
  GARONNE_UNROLLED
  for (int first = 0; first < count; first += pack<T>) {
#ifdef __CUDA_ARCH__
    const Bytes16 bytes = *reinterpret_cast<const Bytes16*>(place + first);
    memcpy(fetched.elements + first, &bytes, 16);
#else
    std::memcpy(fetched.elements + first, place + first, 16);
#endif
  }
  return fetched;
}

// Elements [0, count) at `place`, in one access for each 16 bytes where the address allows it.
template <int count, typename T>
KOKKOS_FUNCTION Fetched<T, count> fetch(const T* place) {
  if constexpr (count % pack<T> == 0) {
    if (has_packs(place)) return fetch_packs<count>(place);
  }
  Fetched<T, count> fetched;
  GARONNE_UNROLLED
  for (int i = 0; i < count; ++i) fetched.elements[i] = place[i];
  return fetched;
}

template <int count, typename T>
KOKKOS_FUNCTION void unpack(const Fetched<T, count>& fetched,
                            Values<Accumulation<T>, count>& values) {
  GARONNE_UNROLLED
  for (int i = 0; i < count; ++i) values[i] = load(fetched.elements[i]);
}

template <int count, typename T>
KOKKOS_FUNCTION void read(const T* place, Values<Accumulation<T>, count>& values) {
  unpack<count>(fetch<count>(place), values);
}

template <int count, typename T>
KOKKOS_FUNCTION void write_packs(T* place, const Values<Accumulation<T>, count>& values) {
  static_assert(count % pack<T> == 0);
  Fetched<T, count> elements;
  GARONNE_UNROLLED
  for (int i = 0; i < count; ++i) store(elements.elements[i], values[i]);
  GARONNE_UNROLLED
  for (int first = 0; first < count; first += pack<T>) {
#ifdef __CUDA_ARCH__
    Bytes16 bytes;
    memcpy(&bytes, elements.elements + first, 16);
    *reinterpret_cast<Bytes16*>(place + first) = bytes;
#else
    std::memcpy(place + first, elements.elements + first, 16);
#endif
  }
}

template <int count, typename T>
KOKKOS_FUNCTION void write(T* place, const Values<Accumulation<T>, count>& values) {
  if constexpr (count % pack<T> == 0) {
    if (has_packs(place)) return write_packs<count>(place, values);
  }
  GARONNE_UNROLLED
  for (int i = 0; i < count; ++i) store(place[i], values[i]);
}

template <int width, typename Function>
struct Elementwise {
  Function function;
  std::int64_t n;
  int rounds;  // of a team

  template <typename Team>
  KOKKOS_FUNCTION void operator()(const Team& team, std::int64_t block) const {
    team.each(Team::threads, [&](int thread) {
      constexpr std::int64_t elements = std::int64_t{Team::threads} * width;
      std::int64_t first = block * rounds * elements + thread * width;
      for (int round = 0; round < rounds; ++round, first += elements) {
        if (first + width <= n) {
          function.template at<width>(first);
        } else {
          for (std::int64_t i = first; i < n; ++i) function.template at<1>(i);
        }
      }
    });
  }
};

// function.at<width>(i) for i = 0, width, …: elements [i, i + width), which one thread has; what is
// left over as at<1>(i). Not one element is met twice. `resident` as for teams.
template <int width, unsigned resident = 4, typename Space, typename Function>
void elementwise(const Space& space, std::int64_t n, const Function& function) {
  constexpr int groups = 8;
  constexpr std::int64_t elements = groups * lanes_of_group * width;
  // Where there are teams enough for any GPU, longer ones spend less on beginning.
  constexpr std::int64_t many_teams = 1024;
  const int rounds = n >= 4 * many_teams * elements ? 4 : 1;
  const std::int64_t of_team = rounds * elements;
  for_teams<groups, resident>(space, (n + of_team - 1) / of_team, 0,
                              Elementwise<width, Function>{function, n, rounds});
}

}  // namespace garonne::kernels::device
