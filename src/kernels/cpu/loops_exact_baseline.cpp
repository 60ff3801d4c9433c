// What has the same bits everywhere, for any processor; compiled without contraction.
#include "kernels/adamw_step.hpp"
#include "kernels/cpu/loops_prelude.hpp"
#include "kernels/normal_numbers.hpp"

#define GARONNE_VECTOR_BYTES 16
namespace garonne::kernels::baseline {
namespace exact {
#include "kernels/cpu/loops_normal.inl"
#include "kernels/cpu/loops_update.inl"
}  // namespace exact

extern const Loop<FillNormalArguments> fill_normal_loops = {
    {exact::fill_normal<float>, exact::fill_normal<double>, exact::fill_normal<BFloat16>}};
extern const Loop<AdamWArguments> adamw_loops = {
    {exact::adamw<float>, exact::adamw<double>, nullptr}};
}  // namespace garonne::kernels::baseline
