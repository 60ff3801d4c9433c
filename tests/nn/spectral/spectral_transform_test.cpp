// Truncated transforms by products against fast transforms and a cut.
#include "nn/spectral/spectral_transform.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>
#include <numeric>

#include "nn/compute_session.hpp"

namespace garonne::nn {
namespace {

struct TransformCase {
  std::vector<std::int64_t> points;
  Frequencies frequencies;
};

const TransformCase transform_cases[] = {
    {{8}, {{0, 1, 2, 3, 4}}},
    {{9}, {{0, 1, 2, 3, 4}}},
    {{1}, {{0}}},
    {{12}, {{0, 1}}},
    {{6, 8}, {{-2, -1, 0, 1}, {0, 1, 2}}},
    {{7, 5}, {{-3, -2, -1, 0, 1, 2, 3}, {0, 1, 2}}},
    {{6, 4}, {{-3, -2, -1, 0, 1, 2}, {0, 1, 2}}},
    {{1, 6}, {{0}, {0, 1, 2, 3}}},
    {{5, 4, 6}, {{-1, 0}, {-2, -1, 0, 1}, {0, 1, 3}}},
    {{3, 1, 2}, {{-1, 0, 1}, {0}, {0, 1}}},
};

std::int64_t product_of(const std::vector<std::int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies<>());
}

// [batch, channels, kept…] complex, of x [batch, channels, points…].
at::Tensor kept_spectrum(const TransformCase& item, const at::Tensor& x) {
  std::vector<std::int64_t> axes;
  for (std::size_t a = 0; a < item.points.size(); ++a)
    axes.push_back(static_cast<std::int64_t>(a) + 2);
  at::Tensor spectrum = at::fft_rfftn(x, at::OptionalIntArrayRef(), axes, "forward");
  for (std::size_t a = 0; a < axes.size(); ++a) {
    std::vector<std::int64_t> which;
    for (const std::int64_t f : item.frequencies[a])
      which.push_back((f + item.points[a]) % item.points[a]);
    spectrum = spectrum.index_select(axes[a], at::tensor(which));
  }
  return spectrum;
}

at::Tensor as_rows(const at::Tensor& x) {
  return x.flatten(2).transpose(1, 2).contiguous().view({-1, x.size(1)});
}

class Transform : public ::testing::TestWithParam<at::ScalarType> {
 protected:
  double tolerance() const { return GetParam() == at::kDouble ? 1e-13 : 1e-6; }
  at::TensorOptions options() const { return at::TensorOptions().dtype(GetParam()); }
};

TEST_P(Transform, KeepsTheFrequenciesOfAFastOne) {
  at::manual_seed(3);
  for (const auto& item : transform_cases) {
    SCOPED_TRACE(product_of(item.points));
    const SpectralTransform transform(item.points, item.frequencies);
    std::vector<std::int64_t> shape = {2, 3};
    shape.insert(shape.end(), item.points.begin(), item.points.end());
    const at::Tensor x = at::randn(shape, at::kDouble);
    const at::Tensor wanted = at::view_as_real(kept_spectrum(item, x))
                                  .reshape({2, 3, transform.modes(), 2})
                                  .permute({0, 3, 2, 1});
    const at::Tensor got = transform.analyse({}, as_rows(x).to(GetParam()), false);
    ASSERT_EQ(got.sizes(), wanted.sizes());
    EXPECT_LT((got.to(at::kDouble) - wanted).abs().max().item<double>(), tolerance());
    EXPECT_TRUE(at::allclose(got.select(1, 0).select(1, transform.zero_mode()).to(at::kDouble),
                             x.flatten(2).mean({-1}), 1e-5, 1e-5));
  }
}

// A field made of kept frequencies is the synthesis of its own transform; what is added to stays.
TEST_P(Transform, ComesBack) {
  at::manual_seed(4);
  for (const auto& item : transform_cases) {
    const SpectralTransform transform(item.points, item.frequencies);
    const std::int64_t rows = 2 * product_of(item.points);
    const at::Tensor x = at::randn({rows, 3}, options());
    at::Tensor field = at::zeros({rows, 3}, options());
    transform.synthesise({}, transform.analyse({}, x, false), field, false);
    at::Tensor again = at::ones({rows, 3}, options());
    transform.synthesise({}, transform.analyse({}, field, false), again, false);
    // A frequency without its opposite is not the transform of a real field, except on the last
    // axis: the synthesis takes the real part, so coming back holds where opposites are all there.
    bool closed = true;
    for (std::size_t a = 0; a + 1 < item.points.size(); ++a) {
      const auto& kept = item.frequencies[a];
      closed &=
          kept.front() == -kept.back() || static_cast<std::int64_t>(kept.size()) == item.points[a];
    }
    if (!closed) continue;
    EXPECT_LT((again - 1 - field).abs().max().item<double>(), 4 * tolerance());
  }
}

// <analyse x, s> = <x, adjoint of s>, and the same of the synthesis.
TEST_P(Transform, AdjointsAreAdjoint) {
  at::manual_seed(5);
  for (const auto& item : transform_cases) {
    const SpectralTransform transform(item.points, item.frequencies);
    const std::int64_t rows = 2 * product_of(item.points);
    const at::Tensor x = at::randn({rows, 3}, options());
    const at::Tensor s = at::randn({2, 2, transform.modes(), 3}, options());
    for (const bool adjoint : {false, true}) {
      at::Tensor back = at::zeros({rows, 3}, options());
      transform.synthesise({}, s, back, !adjoint);
      const at::Tensor spectrum = transform.analyse({}, x, adjoint);
      const double one = (spectrum * s).sum().item<double>();
      const double other = (x * back).sum().item<double>();
      EXPECT_NEAR(one, other, 100 * tolerance() * (std::abs(one) + 1));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Transform, ::testing::Values(at::kFloat, at::kDouble));

}  // namespace
}  // namespace garonne::nn
