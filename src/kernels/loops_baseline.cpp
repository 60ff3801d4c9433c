// The inner loops for any processor.
#include "kernels/loops_prelude.hpp"

#define GARONNE_VECTOR_BYTES 16
namespace garonne::kernels::baseline {
#define GARONNE_LOOPS_NAME "baseline"
#include "kernels/loops_body.inl"
#include "kernels/loops_normal.inl"

extern const Loop<FillNormalArguments> fill_normal_loops = {
    {fill_normal<float>, fill_normal<double>, fill_normal<BFloat16>}};
}  // namespace garonne::kernels::baseline
