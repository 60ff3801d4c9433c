#include "kernels/arrays.hpp"

#include "base/error.hpp"
#include "kernels/product.hpp"

#include <cmath>

namespace garonne::kernels::test {

namespace {

struct Shape {
  std::int64_t m;
  std::int64_t n;
  std::int64_t k;
};

double element(const Array& matrix, bool transpose, std::int64_t row, std::int64_t column,
               std::int64_t row_length, std::int64_t offset) {
  return transpose ? matrix[offset + column * row_length + row]
                   : matrix[offset + row * row_length + column];
}

}  // namespace

TEST(OpenBlas, Product) {
  ASSERT_TRUE(openblas_available()) << openblas_description();
  const Shape shapes[] = {{1, 1, 1},     {3, 17, 5},    {257, 33, 65},
                          {33, 257, 65}, {100, 100, 0}, {130, 97, 17}};
  const std::int64_t padding = 3;
  for (const ElementType type : wide_types) {
    for (const auto [m, n, k] : shapes) {
      for (int form = 0; form < 8; ++form) {
        const bool transpose_a = form & 1;
        const bool transpose_b = form & 2;
        const double beta = form & 4 ? 0.5 : 0.0;
        const std::int64_t lda = (transpose_a ? m : k) + padding;
        const std::int64_t ldb = (transpose_b ? k : n) + padding;
        const std::int64_t ldc = n + padding;
        const Array a = random_array(type, (transpose_a ? k : m) * lda, 1);
        const Array b = random_array(type, (transpose_b ? n : k) * ldb, 2);
        Array c = random_array(type, m * ldc, 3);
        std::vector<double> wanted;
        for (std::int64_t i = 0; i < m; ++i) {
          for (std::int64_t j = 0; j < ldc; ++j) {
            double sum = 0;
            for (std::int64_t l = 0; j < n && l < k; ++l) {
              sum += element(a, transpose_a, i, l, lda, 0) * element(b, transpose_b, l, j, ldb, 0);
            }
            wanted.push_back(j < n ? 2 * sum + beta * c[i * ldc + j] : c[i * ldc + j]);
          }
        }
        openblas_product(host, type, transpose_a, transpose_b, m, n, k, 2, a.data(), lda, b.data(),
                         ldb, beta, c.data(), ldc);
        expect_near(c, wanted, 4 * rounding(type),
                    40.0 * static_cast<double>(k + 1) * rounding(type), "product");
      }
    }
  }
}

TEST(OpenBlas, RepeatsItsBits) {
  ASSERT_TRUE(openblas_available()) << openblas_description();
  const Array a = random_array(ElementType::Float32, 300 * 70, 1);
  Array c(ElementType::Float32, 300 * 300);
  const auto run = [&] {
    openblas_product(host, c.type(), false, true, 300, 300, 70, 1, a.data(), 70, a.data(), 70, 0,
                     c.data(), 300);
    return c;
  };
  const Array once = run();
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(run().same_bits(once));
}

TEST(OpenBlas, RefusesBFloat16) {
  ASSERT_TRUE(openblas_available()) << openblas_description();
  EXPECT_THROW(openblas_product(host, ElementType::BFloat16, false, false, 1, 1, 1, 1, nullptr, 1,
                                nullptr, 1, 0, nullptr, 1),
               InternalError);
}

}  // namespace garonne::kernels::test
