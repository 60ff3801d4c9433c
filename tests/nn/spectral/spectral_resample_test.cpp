// Fields on coarser and finer grids against sums over all points.
#include "nn/spectral/spectral_resample.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "nn/node_runner.hpp"
#include "nn/spectral/fourier_sums.hpp"

namespace garonne::nn {
namespace {

using garonne::test::count_of;
using garonne::test::on_other_grid;
using garonne::test::Points;
using garonne::test::relative_error;

constexpr std::int64_t resampled_batch = 2;

at::Tensor resampled(const Points& points, const Points& others, const at::Tensor& x) {
  const auto node = make_spectral_resample(resampled_batch, points, others, x.size(1));
  return node->forward({}, {x}, {}, nullptr);
}

const std::pair<Points, Points> grids[] = {{{12}, {6}},           {{7}, {4}},
                                           {{8, 12}, {4, 6}},     {{5, 6}, {10, 12}},
                                           {{2, 4}, {4, 2}},      {{4, 6, 10}, {2, 3, 5}},
                                           {{3, 3, 2}, {6, 6, 4}}};

TEST(SpectralResample, EqualsSumsOverAllPoints) {
  at::manual_seed(8);
  for (const auto& [points, others] : grids) {
    const at::Tensor x = at::randn({resampled_batch * count_of(points), 3}, at::kDouble);
    const at::Tensor wanted = on_other_grid(x.view({resampled_batch, -1, 3}), points, others);
    EXPECT_LT(relative_error(resampled(points, others, x), wanted.reshape({-1, 3})), 1e-13);
  }
}

// A wave that both grids have is the same wave on both; the others are gone.
TEST(SpectralResample, KeepsWavesAndDropsTheOthers) {
  const auto wave = [](std::int64_t frequency, std::int64_t points) {
    const at::Tensor place =
        at::arange(points, at::kDouble) * (2 * std::numbers::pi / static_cast<double>(points));
    return at::cos(static_cast<double>(frequency) * place + 0.3)
        .view({-1, 1})
        .repeat({resampled_batch, 1});
  };
  for (const std::int64_t frequency : {0, 1, 2, 3, 4, 5, 6}) {
    const at::Tensor there = resampled({16}, {8}, wave(frequency, 16));
    const at::Tensor wanted =
        frequency < 4 ? wave(frequency, 8) : at::zeros({resampled_batch * 8, 1});
    EXPECT_LT((there - wanted).abs().max().item<double>(), 1e-13) << frequency;
    if (frequency < 4) {
      EXPECT_LT(relative_error(resampled({8}, {16}, there), wave(frequency, 16)), 1e-13);
    }
  }
}

// ⟨A x, y⟩ = ⟨x, Aᵀ y⟩, and the gradient added to another one.
TEST(SpectralResample, BackwardIsTheAdjoint) {
  at::manual_seed(9);
  for (const auto& [points, others] : grids) {
    const auto node = make_spectral_resample(resampled_batch, points, others, 3);
    const at::Tensor x = at::randn({resampled_batch * count_of(points), 3}, at::kDouble);
    const at::Tensor y = at::randn({resampled_batch * count_of(others), 3}, at::kDouble);
    BackwardArguments arguments;
    arguments.output_gradient = y;
    arguments.wanted = {true};
    arguments.add_to.resize(1);
    const at::Tensor gradient = node->backward({}, arguments)[0];
    const double forward = (node->forward({}, {x}, {}, nullptr) * y).sum().item<double>();
    EXPECT_NEAR(forward, (x * gradient).sum().item<double>(), 1e-12 * (1 + std::abs(forward)));
    const at::Tensor before = at::randn_like(x);
    arguments.add_to[0] = before.clone();
    const at::Tensor sum = node->backward({}, arguments)[0];
    EXPECT_EQ(sum.data_ptr(), arguments.add_to[0].data_ptr());
    EXPECT_LT(relative_error(sum, before + gradient), 1e-14);
  }
}

}  // namespace
}  // namespace garonne::nn
