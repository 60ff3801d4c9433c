#include "plan/chain/shifted_minimum.hpp"

// The compiler makes one build of a function for each instruction set and the loader takes the best
// that the processor has. Sanitizers start after the loader asks.
#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define GARONNE_BUILDS __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define GARONNE_BUILDS
#endif

namespace garonne::plan {

GARONNE_BUILDS void take_minimum_of_sum(float* __restrict result, const float* __restrict one,
                                        const float* __restrict two, float constant,
                                        std::size_t count) {
  for (std::size_t n = 0; n < count; ++n) {
    const float sum = constant + (one[n] + two[n]);
    result[n] = sum < result[n] ? sum : result[n];
  }
}

GARONNE_BUILDS void take_minimum(float* __restrict result, const float* __restrict one,
                                 float constant, std::size_t count) {
  for (std::size_t n = 0; n < count; ++n) {
    const float sum = constant + one[n];
    result[n] = sum < result[n] ? sum : result[n];
  }
}

GARONNE_BUILDS void take_minimum(float* __restrict result, float constant, std::size_t count) {
  for (std::size_t n = 0; n < count; ++n) {
    result[n] = constant < result[n] ? constant : result[n];
  }
}

}  // namespace garonne::plan
