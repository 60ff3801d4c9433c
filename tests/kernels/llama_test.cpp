// RMS norm, SwiGLU and rotary positions.
#include "kernels/arrays.hpp"

#include "kernels/rms_norm.hpp"
#include "kernels/rotary.hpp"
#include "kernels/row_extents.hpp"
#include "kernels/swiglu.hpp"

#include <cmath>
#include <complex>

namespace garonne::kernels::test {

namespace {

// 1 / root of the mean of squares of one row, in double.
double inverse_of(const Array& x, std::int64_t row, std::int64_t hidden, double epsilon) {
  double squares = 0;
  for (std::int64_t j = 0; j < hidden; ++j) squares += x[row * hidden + j] * x[row * hidden + j];
  return 1 / std::sqrt(squares / static_cast<double>(hidden) + epsilon);
}

}  // namespace

TEST(RmsNorm, Forward) {
  const double epsilon = 1e-5;
  for (const ElementType type : all_types) {
    const ElementType sums = accumulation_type(type);
    for (const auto [rows, hidden] : extents) {
      const Array x = random_array(type, rows * hidden, 1, 5);
      const Array gain = random_array(type, hidden, 2);
      Array y(type, rows * hidden);
      Array inverse(sums, rows);
      rms_norm_forward(host, type, x.data(), gain.data(), epsilon, y.data(), inverse.data(), rows,
                       hidden);
      std::vector<double> wanted;
      std::vector<double> inverses;
      for (std::int64_t row = 0; row < rows; ++row) {
        inverses.push_back(inverse_of(x, row, hidden, epsilon));
        for (std::int64_t j = 0; j < hidden; ++j)
          wanted.push_back(x[row * hidden + j] * inverses.back() * gain[j]);
      }
      expect_near(inverse, inverses, scaled(sums, 40), 0, "inverse");
      expect_near(y, wanted, scaled(type, 2) + scaled(sums, 60), 0, "y");
      Array again(type, rows * hidden);
      rms_norm_forward(host, type, x.data(), gain.data(), epsilon, again.data(), nullptr, rows,
                       hidden);
      EXPECT_TRUE(again.same_bits(y));
    }
  }
}

TEST(RmsNorm, Backward) {
  const double epsilon = 1e-5;
  for (const ElementType type : all_types) {
    const ElementType sums = accumulation_type(type);
    for (const auto [rows, hidden] : extents) {
      const Array gradient_y = random_array(type, rows * hidden, 4);
      const Array x = random_array(type, rows * hidden, 1, 5);
      const Array gain = random_array(type, hidden, 2);
      Array inverse(sums, rows);
      std::vector<double> for_x;
      std::vector<double> for_gain(static_cast<std::size_t>(hidden));
      for (std::int64_t row = 0; row < rows; ++row) {
        const double s = inverse_of(x, row, hidden, epsilon);
        inverse.set(row, s);
        double product = 0;
        for (std::int64_t j = 0; j < hidden; ++j) {
          const double normal = x[row * hidden + j] * s;
          product += gradient_y[row * hidden + j] * gain[j] * normal / static_cast<double>(hidden);
          for_gain[static_cast<std::size_t>(j)] += gradient_y[row * hidden + j] * normal;
        }
        for (std::int64_t j = 0; j < hidden; ++j) {
          for_x.push_back(
              s * (gradient_y[row * hidden + j] * gain[j] - x[row * hidden + j] * s * product));
        }
      }
      Array workspace(ElementType::Float64, rms_norm_workspace_bytes(type, rows, hidden) / 8 + 1);
      Array gradient_x(type, rows * hidden);
      Array gradient_gain(sums, hidden, 0.5);
      const auto run = [&](bool accumulate_x, bool accumulate_gain, bool with_x, bool with_gain) {
        rms_norm_backward(host, type, gradient_y.data(), x.data(), gain.data(), inverse.data(),
                          with_x ? gradient_x.data() : nullptr, accumulate_x,
                          with_gain ? gradient_gain.data() : nullptr, accumulate_gain,
                          with_gain ? workspace.data() : nullptr, rows, hidden);
      };
      const double tolerance_sum = scaled(sums, 20 + 4.0 * static_cast<double>(rows));
      run(false, false, true, true);
      expect_near(gradient_x, for_x, scaled(type, 2), scaled(sums, 400), "gradient_x");
      expect_near(gradient_gain, for_gain, scaled(sums, 20), tolerance_sum, "gradient_gain");
      // Apart, into fresh places: the same bits.
      const Array x_once = gradient_x;
      const Array gain_once = gradient_gain;
      run(false, false, true, false);
      EXPECT_TRUE(gradient_x.same_bits(x_once));
      run(false, false, false, true);
      EXPECT_TRUE(gradient_gain.same_bits(gain_once));
      // Added to what is there.
      run(true, true, true, true);
      std::vector<double> twice_x;
      for (std::int64_t i = 0; i < x_once.count(); ++i) twice_x.push_back(2 * x_once[i]);
      std::vector<double> twice_gain;
      for (std::int64_t i = 0; i < hidden; ++i) twice_gain.push_back(2 * gain_once[i]);
      expect_near(gradient_x, twice_x, scaled(type, 3), scaled(type, 6), "added gradient_x");
      expect_near(gradient_gain, twice_gain, scaled(sums, 4), 0, "added gradient_gain");
    }
  }
}

TEST(RmsNorm, BitsDoNotDependOnThreads) {
  expect_thread_independent([] {
    const ElementType type = ElementType::Float32;
    const std::int64_t rows = 600;
    const std::int64_t hidden = 384;
    const Array x = random_array(type, rows * hidden, 1, 5);
    const Array gain = random_array(type, hidden, 2);
    const Array given = random_array(type, rows * hidden, 3);
    Array y(type, rows * hidden);
    Array inverse(type, rows);
    Array result(type, hidden + rows * hidden);
    Array workspace(type, rms_norm_workspace_bytes(type, rows, hidden) / 4);
    rms_norm_forward(host, type, x.data(), gain.data(), 1e-5, y.data(), inverse.data(), rows,
                     hidden);
    auto* const place = static_cast<float*>(result.data());
    rms_norm_backward(host, type, given.data(), x.data(), gain.data(), inverse.data(),
                      place + hidden, false, place, false, workspace.data(), rows, hidden);
    return result;
  });
}

TEST(Swiglu, ForwardAndBackward) {
  for (const ElementType type : all_types) {
    for (const auto [rows, inner] : extents) {
      const Array x = random_array(type, rows * 2 * inner, 1, 6);
      const Array gradient_y = random_array(type, rows * inner, 2);
      Array y(type, rows * inner);
      Array gradient_x(type, rows * 2 * inner);
      swiglu_forward(host, type, x.data(), y.data(), rows, inner);
      swiglu_backward(host, type, gradient_y.data(), x.data(), gradient_x.data(), rows, inner);
      std::vector<double> wanted;
      std::vector<double> wanted_gradient(static_cast<std::size_t>(rows * 2 * inner));
      for (std::int64_t row = 0; row < rows; ++row) {
        for (std::int64_t j = 0; j < inner; ++j) {
          const double gate = x[row * 2 * inner + j];
          const double up = x[row * 2 * inner + inner + j];
          const double given = gradient_y[row * inner + j];
          const double sigmoid = 1 / (1 + std::exp(-gate));
          wanted.push_back(gate * sigmoid * up);
          const auto at = static_cast<std::size_t>(row * 2 * inner + j);
          wanted_gradient[at] = given * up * (sigmoid + gate * sigmoid * (1 - sigmoid));
          wanted_gradient[at + static_cast<std::size_t>(inner)] = given * gate * sigmoid;
        }
      }
      const double sums = scaled(accumulation_type(type), 16);
      expect_near(y, wanted, scaled(type, 2) + sums, sums, "y");
      expect_near(gradient_x, wanted_gradient, scaled(type, 2) + sums, 4 * sums, "gradient_x");
      // Over the input.
      Array over = x;
      swiglu_backward(host, type, gradient_y.data(), over.data(), over.data(), rows, inner);
      EXPECT_TRUE(over.same_bits(gradient_x));
    }
  }
}

TEST(Swiglu, FarGatesAreFinite) {
  const double gates[] = {-1e30, -200, 200, 1e30};
  Array x(ElementType::Float32, 8);
  for (std::int64_t i = 0; i < 4; ++i) {
    x.set(i, gates[i]);
    x.set(4 + i, 2);
  }
  const Array gradient_y(ElementType::Float32, 4, 1);
  Array y(ElementType::Float32, 4);
  Array gradient_x(ElementType::Float32, 8);
  swiglu_forward(host, ElementType::Float32, x.data(), y.data(), 1, 4);
  swiglu_backward(host, ElementType::Float32, gradient_y.data(), x.data(), gradient_x.data(), 1, 4);
  EXPECT_NEAR(y[1], 0, 1e-30);
  EXPECT_EQ(y[2], 400);
  EXPECT_EQ(gradient_x[2], 2);
  for (std::int64_t i = 0; i < 8; ++i) EXPECT_TRUE(std::isfinite(gradient_x[i])) << i;
}

TEST(Rotary, TurnsPairsOfNumbersByTheirPositions) {
  for (const ElementType type : all_types) {
    for (const RotaryHeads heads :
         {RotaryHeads{1, 1, 0, 2}, RotaryHeads{2, 3, 1, 6}, RotaryHeads{3, 2, 1, 64}}) {
      const std::int64_t sequence = 7;
      const std::int64_t rows = 3 * sequence;
      const std::int64_t half = heads.head_size / 2;
      const auto table = rotary_table(sequence, heads.head_size, 100);
      const Array x = random_array(type, rows * heads.width(), 1);
      Array y(type, rows * heads.width());
      rotate_heads(host, type, x.data(), table.data(), y.data(), heads, false, rows, sequence);
      std::vector<double> wanted;
      for (std::int64_t row = 0; row < rows; ++row) {
        for (std::int64_t head = 0; head < heads.groups * (heads.rotated + heads.copied); ++head) {
          const bool turned = head % (heads.rotated + heads.copied) < heads.rotated;
          for (std::int64_t j = 0; j < heads.head_size; ++j) {
            const std::int64_t first = row * heads.width() + head * heads.head_size + j % half;
            const double angle = turned
                                     ? static_cast<double>(row % sequence) *
                                           std::pow(100.0, -2.0 * static_cast<double>(j % half) /
                                                               static_cast<double>(heads.head_size))
                                     : 0;
            const auto number =
                std::complex<double>(x[first], x[first + half]) * std::polar(1.0, angle);
            wanted.push_back(j < half ? number.real() : number.imag());
          }
        }
      }
      // Angles are float32 numbers.
      expect_near(y, wanted, scaled(type, 4), 4e-6 + scaled(type, 4), "turned");
      // Back again, in place.
      rotate_heads(host, type, y.data(), table.data(), y.data(), heads, true, rows, sequence);
      std::vector<double> before;
      for (std::int64_t i = 0; i < x.count(); ++i) before.push_back(x[i]);
      expect_near(y, before, scaled(type, 8), 1e-6 + scaled(type, 8), "turned back");
    }
  }
}

}  // namespace garonne::kernels::test
