// What has the same bits everywhere, for x86-64 with AVX2; compiled without contraction.
#include "kernels/adamw_step.hpp"
#include "kernels/cpu/loops_prelude.hpp"
#include "kernels/normal_numbers.hpp"

#if defined(__x86_64__)
// As in loops_avx2.cpp.
#pragma GCC target("arch=x86-64-v3,prefer-vector-width=256")
#define GARONNE_VECTOR_BYTES 32
namespace garonne::kernels::avx2 {
namespace exact {
#include "kernels/cpu/loops_normal.inl"
#include "kernels/cpu/loops_update.inl"
}  // namespace exact

extern const Loop<FillNormalArguments> fill_normal_loops = {
    {exact::fill_normal<float>, exact::fill_normal<double>, exact::fill_normal<BFloat16>}};
extern const Loop<AdamWArguments> adamw_loops = {
    {exact::adamw<float>, exact::adamw<double>, nullptr}};
}  // namespace garonne::kernels::avx2
#endif
