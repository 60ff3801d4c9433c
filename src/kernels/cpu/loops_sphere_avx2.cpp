// Spherical harmonic transforms for x86-64 with AVX2.
#include "kernels/cpu/loops_prelude.hpp"

#if defined(__x86_64__)
// As in loops_avx2.cpp.
#pragma GCC target("arch=x86-64-v3,prefer-vector-width=256")
#define GARONNE_VECTOR_BYTES 32
namespace garonne::kernels::avx2 {
namespace {
#include "kernels/cpu/loops_sphere.inl"
}  // namespace

extern const SphereLoops sphere_loops = {
    {{fourier_analysis<float>, fourier_analysis<double>, nullptr}},
    {{fourier_synthesis<float>, fourier_synthesis<double>, nullptr}},
    {{legendre_orders<float, true>, legendre_orders<double, true>, nullptr}},
    {{legendre_orders<float, false>, legendre_orders<double, false>, nullptr}},
};
}  // namespace garonne::kernels::avx2
#endif
