// The inner loops for x86-64 with AVX2 and FMA.
#include "kernels/cpu/loops_prelude.hpp"

#if defined(__x86_64__)
// A pragma and not a compiler flag: what the headers above hold stays code for any processor, so
// the linker cannot pick a copy of theirs that uses these instructions.
#pragma GCC target("arch=x86-64-v3,prefer-vector-width=256")
#define GARONNE_VECTOR_BYTES 32
namespace garonne::kernels::avx2 {
#define GARONNE_LOOPS_NAME "avx2"
#include "kernels/cpu/loops_body.inl"
}  // namespace garonne::kernels::avx2
#endif
