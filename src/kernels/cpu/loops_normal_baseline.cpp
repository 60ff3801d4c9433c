// Normal numbers for any processor; compiled without contraction.
#include "kernels/cpu/loops_prelude.hpp"

#define GARONNE_VECTOR_BYTES 16
namespace garonne::kernels::baseline {
namespace exact {
#include "kernels/cpu/loops_normal.inl"
}  // namespace exact

extern const Loop<FillNormalArguments> fill_normal_loops = {
    {exact::fill_normal<float>, exact::fill_normal<double>, exact::fill_normal<BFloat16>}};
}  // namespace garonne::kernels::baseline
