#include "kernels/cpu/loops.hpp"

#include "base/error.hpp"

#include <cstdlib>
#include <string>
#include <string_view>

namespace garonne::kernels {

namespace {

const Loops& choose() {
  // Lets a run on unlike machines use what all of them have, and tests reach every copy.
  const char* const given = std::getenv("GARONNE_INSTRUCTIONS");
  const std::string_view wanted = given ? given : "";
  if (wanted == "baseline") return baseline::table;
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                        __builtin_cpu_supports("bmi2");
  const bool has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (wanted == "avx2" && has_avx2) return avx2::table;
  if (!wanted.empty() && !(wanted == "avx512" && has_avx2 && has_avx512)) {
    throw ConfigError("GARONNE_INSTRUCTIONS", given,
                      "this processor can do baseline" + std::string(has_avx2 ? ", avx2" : "") +
                          std::string(has_avx2 && has_avx512 ? ", avx512" : ""));
  }
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
