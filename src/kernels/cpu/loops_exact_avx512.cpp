// What has the same bits everywhere, for x86-64 with AVX-512 (F, BW, DQ, VL); compiled without
// contraction.
#include "kernels/adamw_step.hpp"
#include "kernels/cpu/loops_prelude.hpp"
#include "kernels/normal_numbers.hpp"

#if defined(__x86_64__)
// As in loops_avx512.cpp.
#pragma GCC target("arch=x86-64-v4,prefer-vector-width=512")
#define GARONNE_VECTOR_BYTES 64
namespace garonne::kernels::avx512 {
namespace exact {
#include "kernels/cpu/loops_normal.inl"
#include "kernels/cpu/loops_update.inl"
}  // namespace exact

extern const Loop<FillNormalArguments> fill_normal_loops = {
    {exact::fill_normal<float>, exact::fill_normal<double>, exact::fill_normal<BFloat16>}};
extern const Loop<AdamWArguments> adamw_loops = {
    {exact::adamw<float>, exact::adamw<double>, nullptr}};
}  // namespace garonne::kernels::avx512
#endif
