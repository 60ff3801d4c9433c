// Spherical harmonic transforms for any processor.
#include "kernels/cpu/loops_prelude.hpp"

#define GARONNE_VECTOR_BYTES 16
namespace garonne::kernels::baseline {
namespace {
#include "kernels/cpu/loops_sphere.inl"
}  // namespace

extern const SphereLoops sphere_loops = {
    {{fourier_analysis<float>, fourier_analysis<double>, nullptr}},
    {{fourier_synthesis<float>, fourier_synthesis<double>, nullptr}},
    {{legendre_orders<float, true>, legendre_orders<double, true>, nullptr}},
    {{legendre_orders<float, false>, legendre_orders<double, false>, nullptr}},
};
}  // namespace garonne::kernels::baseline
