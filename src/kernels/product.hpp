// Matrix products by OpenBLAS, opened at run time. It is used single-threaded on slices, one slice
// a thread of the kernels' own pool, because its own threads fight the OpenMP runtime's.
#pragma once

#include "base/device.hpp"
#include "kernels/element_type.hpp"

#include <cstdint>
#include <string>

namespace garonne::kernels {

// Whether the library was found: the file that the environment variable GARONNE_OPENBLAS names,
// else the one known when Garonne was built. The first call loads it; it sets OPENBLAS_CORETYPE and
// OPENBLAS_NUM_THREADS in the environment, so it should come before other threads read the
// environment.
bool openblas_available();

// For people: the library's own description of itself, or why it is not available.
std::string openblas_description();

// C = alpha * op(A) * op(B) + beta * C with op(A) [m, k], op(B) [k, n], C [m, n], all row-major: A
// is [m, k] (or [k, m] when transpose_a) with lda elements a row, B is [k, n] (or [n, k]), C [m,
// n]. With beta = 0, C is only written. type is Float32 or Float64 (InternalError otherwise, and on
// extents or row lengths above 2^31 - 1). NotBuiltError when OpenBLAS is not available. Bits are a
// function of the shape and of the thread count.
void openblas_product(const Queue& queue, ElementType type, bool transpose_a, bool transpose_b,
                      std::int64_t m, std::int64_t n, std::int64_t k, double alpha, const void* a,
                      std::int64_t lda, const void* b, std::int64_t ldb, double beta, void* c,
                      std::int64_t ldc);

}  // namespace garonne::kernels
