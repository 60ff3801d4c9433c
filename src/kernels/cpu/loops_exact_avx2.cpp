// What has the same bits everywhere, for x86-64 with AVX2; compiled without contraction.
#include "kernels/adafactor_step.hpp"
#include "kernels/adamw_step.hpp"
#include "kernels/cpu/loops_prelude.hpp"
#include "kernels/lamb_step.hpp"
#include "kernels/momentum_step.hpp"
#include "kernels/normal_numbers.hpp"

#if defined(__x86_64__)
// As in loops_avx2.cpp.
#pragma GCC target("arch=x86-64-v3,prefer-vector-width=256")
#define GARONNE_VECTOR_BYTES 32
namespace garonne::kernels::avx2 {
#include "kernels/cpu/loops_exact_body.inl"
}  // namespace garonne::kernels::avx2
#endif
