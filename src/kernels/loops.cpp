#include "kernels/loops.hpp"

namespace garonne::kernels {

namespace {

const Loops& choose() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                        __builtin_cpu_supports("bmi2");
  const bool has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (has_avx2 && has_avx512) return avx512::table;
  if (has_avx2) return avx2::table;
#endif
  return baseline::table;
}

}  // namespace

const Loops& loops() {
  static const Loops& chosen = choose();
  return chosen;
}

}  // namespace garonne::kernels
