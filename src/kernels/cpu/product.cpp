#include "kernels/product.hpp"

#include "base/error.hpp"
#include "kernels/cpu/parallel.hpp"
#include "kernels/dispatch.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <string>

namespace garonne::kernels {

namespace {

enum Order : int { RowMajor = 101 };
enum Transpose : int { No = 111, Yes = 112 };

template <typename T>
using Product = void (*)(int order, int transpose_a, int transpose_b, int m, int n, int k, T alpha,
                         const T* a, int lda, const T* b, int ldb, T beta, T* c, int ldc);

struct OpenBlas {
  Product<float> float32 = nullptr;
  Product<double> float64 = nullptr;
  std::string description;
};

// The kernels for which OpenBLAS is to take this processor; null where its own guess stands.
const char* core_type() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    return "SkylakeX";  // it takes new AMD processors with AVX-512 for Haswell, at half the speed
  }
#endif
  return nullptr;
}

OpenBlas open_library() {
  std::string path;
#ifdef GARONNE_OPENBLAS_LIBRARY
  path = GARONNE_OPENBLAS_LIBRARY;
  // An installed tree has its own, wherever it was moved to.
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (!path.empty() && !error) {
    const fs::path own = program.parent_path().parent_path() / GARONNE_LIBRARY_FOLDER / "garonne" /
                         fs::path(path).filename();
    if (fs::exists(own, error)) path = own.string();
  }
#endif
  if (const char* given = std::getenv("GARONNE_OPENBLAS")) path = given;
  OpenBlas library;
  if (path.empty()) {
    library.description =
        "OpenBLAS is not available: built without it, and GARONNE_OPENBLAS is not set";
    return library;
  }
  if (const char* core = core_type()) setenv("OPENBLAS_CORETYPE", core, /*overwrite=*/1);
  setenv("OPENBLAS_NUM_THREADS", "1", /*overwrite=*/1);
  void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* reason = dlerror();
    library.description = "OpenBLAS is not available: " + std::string(reason ? reason : path);
    return library;
  }
  // Wheels and distributions prefix the names differently.
  const auto find = [&](const char* name) {
    void* symbol = dlsym(handle, ("scipy_" + std::string(name)).c_str());
    return symbol ? symbol : dlsym(handle, name);
  };
  library.float32 = reinterpret_cast<Product<float>>(find("cblas_sgemm"));
  library.float64 = reinterpret_cast<Product<double>>(find("cblas_dgemm"));
  if (library.float32 == nullptr || library.float64 == nullptr) {
    library.float32 = nullptr;
    library.description =
        "OpenBLAS is not available: " + path + " has no cblas_sgemm and cblas_dgemm";
    return library;
  }
  if (void* set_threads = find("openblas_set_num_threads"))
    reinterpret_cast<void (*)(int)>(set_threads)(1);
  library.description = path;
  if (void* configuration = find("openblas_get_config")) {
    library.description = reinterpret_cast<const char* (*)()>(configuration)();
    if (void* core_name = find("openblas_get_corename")) {
      library.description += std::string(" as ") + reinterpret_cast<const char* (*)()>(core_name)();
    }
  }
  return library;
}

const OpenBlas& open_blas() {
  static const OpenBlas library = open_library();
  return library;
}

struct Shape {
  bool transpose_a;
  bool transpose_b;
  std::int64_t m;
  std::int64_t n;
  std::int64_t k;
  std::int64_t lda;
  std::int64_t ldb;
  std::int64_t ldc;
};

void check(ElementType type, const Shape& shape) {
  if (!openblas_available()) {
    throw NotBuiltError(
        "OpenBLAS",
        openblas_description() + "; install the wheel scipy-openblas32 or set GARONNE_OPENBLAS");
  }
  expect(type != ElementType::BFloat16, "openblas_product wants Float32 or Float64");
  const std::int64_t most = std::max({shape.m, shape.n, shape.k, shape.lda, shape.ldb, shape.ldc});
  const std::int64_t least = std::min({shape.m, shape.n, shape.k});
  expect(most <= std::numeric_limits<int>::max() && least >= 0,
         "openblas_product: extents out of range");
}

// One single-threaded product; offsets in elements.
void run(ElementType type, const Shape& shape, double alpha, const void* a, std::int64_t a_offset,
         const void* b, std::int64_t b_offset, double beta, void* c, std::int64_t c_offset) {
  const auto call = [&]<typename T>(Product<T> product) {
    product(RowMajor, shape.transpose_a ? Yes : No, shape.transpose_b ? Yes : No,
            static_cast<int>(shape.m), static_cast<int>(shape.n), static_cast<int>(shape.k),
            static_cast<T>(alpha), static_cast<const T*>(a) + a_offset, static_cast<int>(shape.lda),
            static_cast<const T*>(b) + b_offset, static_cast<int>(shape.ldb), static_cast<T>(beta),
            static_cast<T*>(c) + c_offset, static_cast<int>(shape.ldc));
  };
  if (type == ElementType::Float32) {
    call(open_blas().float32);
  } else {
    call(open_blas().float64);
  }
}

// Multiply-adds below which a second thread is not worth waking.
constexpr double least_work = 65536;

}  // namespace

bool openblas_available() {
  return open_blas().float32 != nullptr;
}

std::string openblas_description() {
  return open_blas().description;
}

void openblas_product(const Queue& queue, ElementType type, bool transpose_a, bool transpose_b,
                      std::int64_t m, std::int64_t n, std::int64_t k, double alpha, const void* a,
                      std::int64_t lda, const void* b, std::int64_t ldb, double beta, void* c,
                      std::int64_t ldc) {
  expect_host(queue);
  const Shape whole{transpose_a, transpose_b, m, n, k, lda, ldb, ldc};
  check(type, whole);
  if (m == 0 || n == 0) return;
  // Slices of whole tiles of the library's inner kernel, along the longer side.
  const bool along_m = m >= n;
  const std::int64_t extent = along_m ? m : n;
  const std::int64_t tile = 48;
  const double work_of_item =
      static_cast<double>(along_m ? n : m) * static_cast<double>(std::max<std::int64_t>(k, 1));
  const auto grain = static_cast<std::int64_t>(least_work / work_of_item) + 1;
  for_ranges(queue, extent, grain, tile, [&](std::int64_t begin, std::int64_t end) {
    Shape slice = whole;
    if (along_m) {
      slice.m = end - begin;
      run(type, slice, alpha, a, transpose_a ? begin : begin * lda, b, 0, beta, c, begin * ldc);
    } else {
      slice.n = end - begin;
      run(type, slice, alpha, a, 0, b, transpose_b ? begin * ldb : begin, beta, c, begin);
    }
  });
}

}  // namespace garonne::kernels
