// Instance norm against its formulas in double.
#include "kernels/arrays.hpp"

#include "kernels/instance_norm.hpp"

#include <cmath>
#include <vector>

namespace garonne::kernels::test {

namespace {

struct FieldExtents {
  std::int64_t batch;
  std::int64_t points;
  std::int64_t channels;
};
// One block of points and many, fewer channels than a register, more than are summed together.
const FieldExtents field_extents[] = {
    {1, 1, 1}, {2, 37, 3}, {3, 200, 17}, {1, 5000, 131}, {2, 64, 300}};
constexpr double epsilon = 1e-5;

struct Sample {
  std::vector<double> mean;
  std::vector<double> inverse;
};

Sample statistics(const Array& x, const FieldExtents& e, std::int64_t entry) {
  Sample sample;
  for (std::int64_t c = 0; c < e.channels; ++c) {
    // Wider than double: the reference must not lose what the kernel keeps.
    long double mean = 0;
    long double variance = 0;
    const auto count = static_cast<long double>(e.points);
    const auto at = [&](std::int64_t k) { return x[(entry * e.points + k) * e.channels + c]; };
    for (std::int64_t k = 0; k < e.points; ++k) mean += at(k) / count;
    for (std::int64_t k = 0; k < e.points; ++k) variance += (at(k) - mean) * (at(k) - mean) / count;
    sample.mean.push_back(static_cast<double>(mean));
    sample.inverse.push_back(1 / std::sqrt(static_cast<double>(variance) + epsilon));
  }
  return sample;
}

struct Norm {
  Norm(ElementType element, const FieldExtents& given)
      : type(element),
        e(given),
        count(e.batch * e.points * e.channels),
        x(random_array(type, count, 3)),
        gain(random_array(type, e.channels, 4)),
        bias(random_array(type, e.channels, 5)),
        y(type, count, 1e9),
        mean(accumulation_type(type), e.batch * e.channels, 1e9),
        inverse(accumulation_type(type), e.batch * e.channels, 1e9),
        workspace(ElementType::Float32,
                  instance_norm_workspace_bytes(e.batch, e.points, e.channels) / 4, NAN) {
    // Far from zero, where differences of squares would lose their digits.
    for (std::int64_t i = 0; i < count; ++i)
      x.set(i, x[i] + 50 * static_cast<double>(i % e.channels));
  }
  void forward() {
    instance_norm_forward(host, type, x.data(), gain.data(), bias.data(), epsilon, y.data(),
                          mean.data(), inverse.data(), workspace.data(), e.batch, e.points,
                          e.channels);
  }

  ElementType type;
  FieldExtents e;
  std::int64_t count;
  Array x;
  Array gain;
  Array bias;
  Array y;
  Array mean;
  Array inverse;
  Array workspace;
};

constexpr ElementType types[] = {ElementType::Float32, ElementType::Float64, ElementType::BFloat16};

TEST(InstanceNorm, Forward) {
  for (const ElementType type : types) {
    for (const FieldExtents& e : {field_extents[0], field_extents[1], field_extents[2],
                                  field_extents[3], field_extents[4]}) {
      Norm norm(type, e);
      norm.forward();
      std::vector<double> wanted;
      double scale = 0;
      for (std::int64_t entry = 0; entry < e.batch; ++entry) {
        const Sample sample = statistics(norm.x, e, entry);
        for (std::int64_t i = 0; i < e.points * e.channels; ++i) {
          const auto c = static_cast<std::size_t>(i % e.channels);
          const double value = norm.x[entry * e.points * e.channels + i];
          const auto channel = static_cast<std::int64_t>(c);
          wanted.push_back((value - sample.mean[c]) * sample.inverse[c] * norm.gain[channel] +
                           norm.bias[channel]);
          // What the mean, rounded to the type of sums, lets through.
          scale = std::max(scale, std::abs(sample.mean[c]) * sample.inverse[c]);
        }
      }
      const double unit = rounding(accumulation_type(type));
      expect_near(norm.y, wanted, 8 * rounding(type), 8 * rounding(type) + 16 * unit * (scale + 1),
                  "instance norm");
    }
  }
}

TEST(InstanceNorm, Backward) {
  for (const ElementType type : types) {
    for (const FieldExtents& e : field_extents) {
      for (const bool accumulate : {false, true}) {
        Norm norm(type, e);
        norm.forward();
        const Array given = random_array(type, norm.count, 6);
        Array gradient(type, norm.count, 1e9);
        const ElementType sums = accumulation_type(type);
        const double before = accumulate ? 0.5 : 1e9;
        Array of_gain(sums, e.channels, before);
        Array of_bias(sums, e.channels, before);
        instance_norm_backward(host, type, given.data(), norm.x.data(), norm.gain.data(),
                               norm.mean.data(), norm.inverse.data(), gradient.data(),
                               of_gain.data(), of_bias.data(), accumulate, norm.workspace.data(),
                               e.batch, e.points, e.channels);
        std::vector<double> wanted(static_cast<std::size_t>(norm.count));
        std::vector<double> gain(static_cast<std::size_t>(e.channels), accumulate ? 0.5 : 0);
        std::vector<double> bias = gain;
        double scale = 1;
        for (std::int64_t entry = 0; entry < e.batch; ++entry) {
          for (std::int64_t c = 0; c < e.channels; ++c) {
            // From the statistics as they were rounded.
            const double mean = norm.mean[entry * e.channels + c];
            const double inverse = norm.inverse[entry * e.channels + c];
            double sum = 0;
            double product = 0;
            const auto at = [&](std::int64_t k) { return (entry * e.points + k) * e.channels + c; };
            for (std::int64_t k = 0; k < e.points; ++k) {
              sum += given[at(k)];
              product += given[at(k)] * (norm.x[at(k)] - mean) * inverse;
            }
            gain[static_cast<std::size_t>(c)] += product;
            bias[static_cast<std::size_t>(c)] += sum;
            const auto count = static_cast<double>(e.points);
            for (std::int64_t k = 0; k < e.points; ++k) {
              const double normal = (norm.x[at(k)] - mean) * inverse;
              wanted[static_cast<std::size_t>(at(k))] =
                  norm.gain[c] * inverse * (given[at(k)] - sum / count - normal * product / count);
            }
            scale = std::max(scale, inverse);
          }
        }
        const auto points = static_cast<double>(e.points * e.batch);
        expect_near(gradient, wanted, 16 * rounding(type), 64 * rounding(sums) * scale, "x");
        expect_near(of_gain, gain, 16 * rounding(sums), 16 * rounding(sums) * std::sqrt(points) * 8,
                    "gain");
        expect_near(of_bias, bias, 16 * rounding(sums), 16 * rounding(sums) * std::sqrt(points) * 8,
                    "bias");
      }
    }
  }
}

TEST(InstanceNorm, MomentsOfSomePoints) {
  for (const ElementType type : types) {
    for (const FieldExtents& e : field_extents) {
      Norm norm(type, e);
      const std::int64_t half = e.points / 2;
      const std::vector<PointRun> runs = {{0, half}, {half + 1, e.points - half - 1}};
      std::vector<PointRun> counted;
      for (const PointRun& run : runs) {
        if (run.count > 0) counted.push_back(run);
      }
      std::vector<double> moments(static_cast<std::size_t>(2 * e.batch * e.channels), 1e9);
      instance_norm_moments(host, type, norm.x.data(), counted, moments.data(),
                            norm.workspace.data(), e.batch, e.points, e.channels);
      const auto count = static_cast<long double>(e.points - 1);
      for (std::int64_t i = 0; i < e.batch * e.channels; ++i) {
        const auto x = [&](std::int64_t point) {
          return norm.x[(i / e.channels * e.points + point) * e.channels + i % e.channels];
        };
        long double sum = 0;
        for (const PointRun& run : counted) {
          for (std::int64_t k = run.first; k < run.first + run.count; ++k) sum += x(k);
        }
        const long double wanted = e.points == 1 ? 0 : sum / count;
        long double beside = 0;
        for (const PointRun& run : counted) {
          for (std::int64_t k = run.first; k < run.first + run.count; ++k)
            beside += (x(k) - wanted) * (x(k) - wanted);
        }
        const double mean = moments[static_cast<std::size_t>(i)];
        const double squares = moments[static_cast<std::size_t>(e.batch * e.channels + i)];
        EXPECT_NEAR(mean, static_cast<double>(wanted), 1e-12 * (1 + std::abs(mean)));
        EXPECT_NEAR(squares, static_cast<double>(beside), 1e-11 * (1 + squares));
      }
    }
  }
}

TEST(InstanceNorm, ApplyingIsTheForwardAndItsBackwardWithoutStatistics) {
  for (const ElementType type : types) {
    const FieldExtents e{3, 200, 17};
    Norm norm(type, e);
    norm.forward();
    Array y(type, norm.count, 1e9);
    instance_norm_apply(host, type, norm.x.data(), norm.gain.data(), norm.bias.data(),
                        norm.mean.data(), norm.inverse.data(), y.data(), e.batch, e.points,
                        e.channels);
    for (std::int64_t i = 0; i < norm.count; ++i) ASSERT_EQ(y[i], norm.y[i]);
    const Array given = random_array(type, norm.count, 6);
    Array gradient(type, norm.count, 1e9);
    std::vector<double> sums(static_cast<std::size_t>(2 * e.batch * e.channels), 1e9);
    instance_norm_apply_backward(host, type, given.data(), norm.x.data(), norm.gain.data(),
                                 norm.mean.data(), norm.inverse.data(), gradient.data(),
                                 sums.data(), norm.workspace.data(), e.batch, e.points, e.channels);
    const ElementType wide = accumulation_type(type);
    for (std::int64_t s = 0; s < e.batch * e.channels; ++s) {
      const std::int64_t b = s / e.channels;
      const std::int64_t c = s % e.channels;
      double sum = 0;
      double product = 0;
      for (std::int64_t k = 0; k < e.points; ++k) {
        const std::int64_t i = (b * e.points + k) * e.channels + c;
        const double factor = norm.gain[c] * norm.inverse[s];
        EXPECT_NEAR(gradient[i], given[i] * factor, 4 * rounding(type) * (1 + std::abs(factor)));
        sum += given[i];
        product += given[i] * (norm.x[i] - norm.mean[s]) * norm.inverse[s];
      }
      EXPECT_NEAR(sums[static_cast<std::size_t>(2 * b * e.channels + c)], sum, 1e-10);
      EXPECT_NEAR(sums[static_cast<std::size_t>((2 * b + 1) * e.channels + c)], product,
                  64 * rounding(wide) * std::sqrt(static_cast<double>(e.points)) * 8);
    }
  }
}

TEST(InstanceNorm, BitsDoNotDependOnThreads) {
  const FieldExtents e{2, 3000, 37};
  expect_thread_independent([&] {
    Norm norm(ElementType::Float32, e);
    norm.forward();
    return norm.y;
  });
}

}  // namespace

}  // namespace garonne::kernels::test
