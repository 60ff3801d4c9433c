// What has the same bits everywhere, for x86-64 with AVX-512 (F, BW, DQ, VL); compiled without
// contraction.
#include "kernels/adafactor_step.hpp"
#include "kernels/adamw_step.hpp"
#include "kernels/cpu/loops_prelude.hpp"
#include "kernels/lamb_step.hpp"
#include "kernels/momentum_step.hpp"
#include "kernels/normal_numbers.hpp"

#if defined(__x86_64__)
// As in loops_avx512.cpp.
#pragma GCC target("arch=x86-64-v4,prefer-vector-width=512")
#define GARONNE_VECTOR_BYTES 64
namespace garonne::kernels::avx512 {
#include "kernels/cpu/loops_exact_body.inl"
}  // namespace garonne::kernels::avx512
#endif
