// Layer norm, GELU, bias and cross entropy.
#include "kernels/arrays.hpp"

#include "base/error.hpp"
#include "kernels/bias.hpp"
#include "kernels/cross_entropy.hpp"
#include "kernels/gelu.hpp"
#include "kernels/layer_norm.hpp"
#include "kernels/row_extents.hpp"

#include <cmath>
#include <limits>
#include <numbers>

namespace garonne::kernels::test {

namespace {

// Mean, 1 / deviation of one row, in double.
void statistics(const Array& x, std::int64_t row, std::int64_t hidden, double epsilon, double& mean,
                double& inverse) {
  mean = 0;
  for (std::int64_t j = 0; j < hidden; ++j)
    mean += x[row * hidden + j] / static_cast<double>(hidden);
  double variance = 0;
  for (std::int64_t j = 0; j < hidden; ++j) {
    const double deviation = x[row * hidden + j] - mean;
    variance += deviation * deviation / static_cast<double>(hidden);
  }
  inverse = 1 / std::sqrt(variance + epsilon);
}

}  // namespace

TEST(LayerNorm, Forward) {
  const double epsilon = 1e-5;
  for (const ElementType type : all_types) {
    const ElementType sums = accumulation_type(type);
    for (const auto [rows, hidden] : extents) {
      if (hidden < 2) continue;
      const Array x = random_array(type, rows * hidden, 1, 5);
      const Array gain = random_array(type, hidden, 2);
      const Array bias = random_array(type, hidden, 3);
      Array y(type, rows * hidden);
      Array mean(sums, rows);
      Array inverse(sums, rows);
      layer_norm_forward(host, type, x.data(), gain.data(), bias.data(), epsilon, y.data(),
                         mean.data(), inverse.data(), rows, hidden);
      std::vector<double> wanted;
      std::vector<double> means;
      std::vector<double> inverses;
      for (std::int64_t row = 0; row < rows; ++row) {
        double m = 0;
        double s = 0;
        statistics(x, row, hidden, epsilon, m, s);
        means.push_back(m);
        inverses.push_back(s);
        for (std::int64_t j = 0; j < hidden; ++j) {
          wanted.push_back((x[row * hidden + j] - m) * s * gain[j] + bias[j]);
        }
      }
      expect_near(mean, means, scaled(sums, 8), scaled(sums, 40), "mean");
      expect_near(inverse, inverses, scaled(sums, 40), 0, "inverse deviation");
      expect_near(y, wanted, scaled(type, 2), scaled(sums, 200), "y");
      Array again(type, rows * hidden);
      layer_norm_forward(host, type, x.data(), gain.data(), bias.data(), epsilon, again.data(),
                         nullptr, nullptr, rows, hidden);
      EXPECT_TRUE(again.same_bits(y));
    }
  }
}

TEST(LayerNorm, Backward) {
  const double epsilon = 1e-5;
  for (const ElementType type : all_types) {
    const ElementType sums = accumulation_type(type);
    for (const auto [rows, hidden] : extents) {
      if (hidden < 2) continue;
      const Array gradient_y = random_array(type, rows * hidden, 4);
      const Array x = random_array(type, rows * hidden, 1, 5);
      const Array gain = random_array(type, hidden, 2);
      Array mean(sums, rows);
      Array inverse(sums, rows);
      std::vector<double> for_x;
      std::vector<double> for_gain(static_cast<std::size_t>(hidden));
      std::vector<double> for_bias(static_cast<std::size_t>(hidden));
      for (std::int64_t row = 0; row < rows; ++row) {
        double m = 0;
        double s = 0;
        statistics(x, row, hidden, epsilon, m, s);
        mean.set(row, m);
        inverse.set(row, s);
        double sum = 0;
        double product = 0;
        for (std::int64_t j = 0; j < hidden; ++j) {
          const double slope = gradient_y[row * hidden + j];
          const double normal = (x[row * hidden + j] - m) * s;
          sum += slope * gain[j] / static_cast<double>(hidden);
          product += slope * gain[j] * normal / static_cast<double>(hidden);
          for_gain[static_cast<std::size_t>(j)] += slope * normal;
          for_bias[static_cast<std::size_t>(j)] += slope;
        }
        for (std::int64_t j = 0; j < hidden; ++j) {
          const double normal = (x[row * hidden + j] - m) * s;
          for_x.push_back(s * (gradient_y[row * hidden + j] * gain[j] - sum - normal * product));
        }
      }
      Array workspace(ElementType::Float64, layer_norm_workspace_bytes(type, rows, hidden) / 8 + 1);
      Array gradient_x(type, rows * hidden);
      Array gradient_gain(sums, hidden, 0.5);
      Array gradient_bias(sums, hidden, 0.25);
      const auto run = [&](bool accumulate_x, bool accumulate_parameters, bool with_x,
                           bool with_parameters) {
        layer_norm_backward(host, type, gradient_y.data(), x.data(), gain.data(), mean.data(),
                            inverse.data(), with_x ? gradient_x.data() : nullptr, accumulate_x,
                            with_parameters ? gradient_gain.data() : nullptr,
                            with_parameters ? gradient_bias.data() : nullptr, accumulate_parameters,
                            with_parameters ? workspace.data() : nullptr, rows, hidden);
      };
      const double tolerance_sum = scaled(sums, 20 + 4.0 * static_cast<double>(rows));
      run(false, false, true, true);
      expect_near(gradient_x, for_x, scaled(type, 2), scaled(sums, 200), "gradient_x");
      expect_near(gradient_gain, for_gain, scaled(sums, 20), tolerance_sum, "gradient_gain");
      expect_near(gradient_bias, for_bias, scaled(sums, 20), tolerance_sum, "gradient_bias");
      // Apart, into fresh places: the same bits.
      const Array x_once = gradient_x;
      const Array gain_once = gradient_gain;
      run(false, false, true, false);
      EXPECT_TRUE(gradient_x.same_bits(x_once));
      run(false, false, false, true);
      EXPECT_TRUE(gradient_gain.same_bits(gain_once));
      run(true, true, true, true);
      for (double& value : for_x) value *= 2;
      for (double& value : for_gain) value *= 2;
      for (double& value : for_bias) value *= 2;
      expect_near(gradient_x, for_x, scaled(type, 4), scaled(sums, 400), "gradient_x +=");
      expect_near(gradient_gain, for_gain, scaled(sums, 40), 2 * tolerance_sum, "gradient_gain +=");
      expect_near(gradient_bias, for_bias, scaled(sums, 40), 2 * tolerance_sum, "gradient_bias +=");
    }
  }
}

TEST(LayerNorm, BitsDoNotDependOnThreads) {
  const std::int64_t rows = 531;
  const std::int64_t hidden = 129;
  for (const ElementType type : all_types) {
    const ElementType sums = accumulation_type(type);
    const Array gradient_y = random_array(type, rows * hidden, 4);
    const Array x = random_array(type, rows * hidden, 1, 5);
    const Array gain = random_array(type, hidden, 2);
    Array mean(sums, rows);
    Array inverse(sums, rows);
    Array y(type, rows * hidden);
    expect_thread_independent([&] {
      layer_norm_forward(host, type, x.data(), gain.data(), gain.data(), 1e-5, y.data(),
                         mean.data(), inverse.data(), rows, hidden);
      return y;
    });
    Array workspace(ElementType::Float64, layer_norm_workspace_bytes(type, rows, hidden) / 8 + 1);
    for (const int which : {0, 1, 2}) {
      expect_thread_independent([&] {
        Array gradient_x(type, rows * hidden);
        Array gradient_gain(sums, hidden);
        Array gradient_bias(sums, hidden);
        layer_norm_backward(host, type, gradient_y.data(), x.data(), gain.data(), mean.data(),
                            inverse.data(), gradient_x.data(), false, gradient_gain.data(),
                            gradient_bias.data(), false, workspace.data(), rows, hidden);
        return which == 0 ? gradient_x : which == 1 ? gradient_gain : gradient_bias;
      });
    }
  }
}

TEST(Gelu, ForwardAndBackward) {
  // long double, because 1 + tanh loses the left tail.
  using Real = long double;
  const Real factor = std::sqrt(2 / std::numbers::pi_v<Real>);
  for (const ElementType type : all_types) {
    for (const std::int64_t n : {1L, 3L, 17L, 257L, 40001L}) {
      Array x = random_array(type, n, 1, 6);
      if (n > 20) {
        const double special[] = {0.0, -0.0, 30.0, -30.0, 1e4, -1e4, 1e-30};
        for (std::int64_t i = 0; i < 7; ++i) x.set(i, special[i]);
      }
      const Array gradient_y = random_array(type, n, 2);
      std::vector<double> values;
      std::vector<double> slopes;
      for (std::int64_t i = 0; i < n; ++i) {
        const Real v = x[i];
        const Real tanh = std::tanh(factor * (v + Real{0.044715} * v * v * v));
        values.push_back(static_cast<double>(v / 2 * (1 + tanh)));
        const Real inner_slope = factor * (1 + 3 * Real{0.044715} * v * v);
        slopes.push_back(
            static_cast<double>(static_cast<Real>(gradient_y[i]) *
                                ((1 + tanh) / 2 + v / 2 * (1 - tanh * tanh) * inner_slope)));
      }
      const double unit = rounding(accumulation_type(type));
      Array y(type, n);
      gelu_forward(host, type, x.data(), y.data(), n);
      expect_near(y, values, scaled(type, 2) + 4 * unit, 4 * unit, "gelu");
      Array gradient_x(type, n);
      gelu_backward(host, type, gradient_y.data(), x.data(), gradient_x.data(), n);
      expect_near(gradient_x, slopes, scaled(type, 2) + 8 * unit, 16 * unit, "gelu backward");
      expect_thread_independent([&] {
        gelu_backward(host, type, gradient_y.data(), x.data(), gradient_x.data(), n);
        return gradient_x;
      });
    }
  }
}

TEST(Gelu, NotANumberStays) {
  for (const ElementType type : all_types) {
    const Array x(type, 17, std::numeric_limits<double>::quiet_NaN());
    Array y(type, 17);
    gelu_forward(host, type, x.data(), y.data(), 17);
    for (std::int64_t i = 0; i < 17; ++i) EXPECT_TRUE(std::isnan(y[i]));
  }
}

TEST(Bias, AddAndGradient) {
  for (const ElementType type : all_types) {
    const ElementType sums = accumulation_type(type);
    for (const auto [rows, n] : extents) {
      Array y = random_array(type, rows * n, 1);
      const Array bias = random_array(type, n, 2);
      std::vector<double> added;
      std::vector<double> columns(static_cast<std::size_t>(n));
      for (std::int64_t i = 0; i < rows * n; ++i) {
        columns[static_cast<std::size_t>(i % n)] += y[i];
        added.push_back(y[i] + bias[i % n]);
      }
      Array gradient(sums, n, 7);
      const double tolerance = scaled(sums, 4 + 2.0 * static_cast<double>(rows));
      bias_gradient(host, type, y.data(), gradient.data(), false, rows, n);
      expect_near(gradient, columns, 0, tolerance, "bias gradient");
      bias_gradient(host, type, y.data(), gradient.data(), true, rows, n);
      for (double& value : columns) value *= 2;
      expect_near(gradient, columns, 0, 2 * tolerance, "bias gradient +=");
      expect_thread_independent([&] {
        bias_gradient(host, type, y.data(), gradient.data(), false, rows, n);
        return gradient;
      });
      add_bias(host, type, y.data(), bias.data(), rows, n);
      expect_near(y, added, 1.01 * rounding(type), 0, "add_bias");
    }
  }
}

TEST(CrossEntropy, LossAndGradient) {
  const Extents cases[] = {{1, 1}, {1, 2}, {3, 17}, {17, 257}, {5, 2500}, {130, 256}, {4, 50257}};
  const double scale = 0.125;
  for (const ElementType type : all_types) {
    for (const auto [rows, vocabulary] : cases) {
      const Array logits = random_array(type, rows * vocabulary, 1, 20);
      std::vector<std::int64_t> targets;
      std::vector<double> losses;
      std::vector<double> gradients;
      double sum = 0;
      for (std::int64_t row = 0; row < rows; ++row) {
        targets.push_back((row * 7919 + vocabulary - 1) % vocabulary);
        double most = -1e300;
        for (std::int64_t j = 0; j < vocabulary; ++j)
          most = std::max(most, logits[row * vocabulary + j]);
        double total = 0;
        for (std::int64_t j = 0; j < vocabulary; ++j)
          total += std::exp(logits[row * vocabulary + j] - most);
        losses.push_back(std::log(total) + most - logits[row * vocabulary + targets.back()]);
        sum += losses.back();
        for (std::int64_t j = 0; j < vocabulary; ++j) {
          const double softmax = std::exp(logits[row * vocabulary + j] - most) / total;
          gradients.push_back(scale * (softmax - (j == targets.back() ? 1 : 0)));
        }
      }
      const double unit = rounding(accumulation_type(type));
      // Rounding of the logits' differences and of the sum, and the reference's own.
      const double tolerance = 40 * unit + static_cast<double>(vocabulary) * 0x1p-52;
      Array row_losses(ElementType::Float64, rows);
      Array work = logits;
      double without = NAN;
      cross_entropy(host, type, work.data(), targets.data(), scale, false,
                    static_cast<double*>(row_losses.data()), &without, rows, vocabulary);
      EXPECT_TRUE(work.same_bits(logits));
      EXPECT_NEAR(without, scale * sum, scale * tolerance * static_cast<double>(rows));
      expect_near(row_losses, losses, 0, tolerance, "row losses");
      double with = NAN;
      cross_entropy(host, type, work.data(), targets.data(), scale, true,
                    static_cast<double*>(row_losses.data()), &with, rows, vocabulary);
      EXPECT_EQ(with, without);
      expect_near(work, gradients, scaled(type, 2) + tolerance, scale * 4 * unit, "gradient");
      expect_thread_independent([&] {
        work = logits;
        cross_entropy(host, type, work.data(), targets.data(), scale, true,
                      static_cast<double*>(row_losses.data()), &with, rows, vocabulary);
        return work;
      });
    }
  }
}

TEST(CrossEntropy, RefusesTargetsOutside) {
  float logits[4] = {};
  double row_loss = 0;
  double loss = 0;
  for (const std::int64_t target : {-1L, 4L}) {
    EXPECT_THROW(
        cross_entropy(host, ElementType::Float32, logits, &target, 1, true, &row_loss, &loss, 1, 4),
        InternalError);
  }
}

TEST(CrossEntropy, IsNotFiniteWhereALogitIsNot) {
  const std::int64_t target = 3;
  for (const double value :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    Array logits(ElementType::Float32, 300);
    logits.set(200, value);
    double row_loss = 0;
    double loss = 0;
    cross_entropy(host, logits.type(), logits.data(), &target, 1, true, &row_loss, &loss, 1, 300);
    EXPECT_FALSE(std::isfinite(loss));
  }
}

}  // namespace garonne::kernels::test
