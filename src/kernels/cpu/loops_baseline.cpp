// The inner loops for any processor.
#include "kernels/cpu/loops_prelude.hpp"

#define GARONNE_VECTOR_BYTES 16
namespace garonne::kernels::baseline {
#define GARONNE_LOOPS_NAME "baseline"
#include "kernels/cpu/loops_body.inl"
}  // namespace garonne::kernels::baseline
