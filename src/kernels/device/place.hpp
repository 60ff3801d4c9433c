// Where a device kernel is put; private to this room, and without Kokkos, so that the host's half
// of the room is compiled without knowing whether there is CUDA.
#pragma once

#include <cstdint>
#include <string_view>

namespace garonne::kernels::device {

// The kernels are one source for all of these. The host's spaces are for tests of that source:
// index arithmetic, tails, orders of sums. A build has either them or CUDA (compiled_spaces).
enum class Space { Serial, OpenMp, Cuda };

// "serial", "openmp", "cuda".
std::string_view to_string(Space space);

// Doubles of a place's scratch for sums of sums or numbers of samples, and after them for sums of
// blocks of rows.
inline constexpr std::int64_t scratch_doubles = 4096;
inline constexpr std::int64_t block_doubles = std::int64_t{1} << 19;

// It owns nothing and is copied freely. Kernels put into one place run one after the other.
struct Place {
  Space space = Space::Serial;
  void* instance = nullptr;  // of Cuda: the Kokkos::Cuda on the stream
  // [scratch_doubles + block_doubles] in the memory of the space.
  double* scratch = nullptr;
};

}  // namespace garonne::kernels::device
