// Spherical harmonic transforms for x86-64 with AVX-512 (F, BW, DQ, VL).
#include "kernels/cpu/loops_prelude.hpp"

#if defined(__x86_64__)
// As in loops_avx512.cpp.
#pragma GCC target("arch=x86-64-v4,prefer-vector-width=512")
#define GARONNE_VECTOR_BYTES 64
namespace garonne::kernels::avx512 {
namespace {
#include "kernels/cpu/loops_sphere.inl"
}  // namespace

extern const SphereLoops sphere_loops = {
    {{fourier_analysis<float>, fourier_analysis<double>, nullptr}},
    {{fourier_synthesis<float>, fourier_synthesis<double>, nullptr}},
    {{legendre_orders<float, true>, legendre_orders<double, true>, nullptr}},
    {{legendre_orders<float, false>, legendre_orders<double, false>, nullptr}},
};
}  // namespace garonne::kernels::avx512
#endif
