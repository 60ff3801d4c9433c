// The inner loops for x86-64 with AVX-512 (F, BW, DQ, VL).
#include "kernels/cpu/loops_prelude.hpp"

#if defined(__x86_64__)
// A pragma and not a compiler flag: what the headers above hold stays code for any processor, so
// the linker cannot pick a copy of theirs that uses these instructions.
#pragma GCC target("arch=x86-64-v4,prefer-vector-width=512")
#define GARONNE_VECTOR_BYTES 64
namespace garonne::kernels::avx512 {
#define GARONNE_LOOPS_NAME "avx512"
#include "kernels/cpu/loops_body.inl"
}  // namespace garonne::kernels::avx512
#endif
