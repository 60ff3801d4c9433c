// Philox, conversions, sums, updates of optimizers and initial values.
#include "kernels/arrays.hpp"

#include "base/error.hpp"
#include "base/philox.hpp"
#include "kernels/convert.hpp"
#include "kernels/initialise.hpp"
#include "kernels/lamb_update.hpp"
#include "kernels/momentum_update.hpp"
#include "kernels/optimizer_update.hpp"
#include "kernels/reduction.hpp"
#include "kernels/scalar.hpp"
#include "kernels/session.hpp"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>

namespace garonne::kernels::test {

namespace {

const std::int64_t odd_sizes[] = {1, 3, 17, 257, 1000, 70001};

void expect_words(const PhiloxBlock& block, std::uint32_t a, std::uint32_t b, std::uint32_t c,
                  std::uint32_t d) {
  EXPECT_EQ(block.word[0], a);
  EXPECT_EQ(block.word[1], b);
  EXPECT_EQ(block.word[2], c);
  EXPECT_EQ(block.word[3], d);
}

}  // namespace

TEST(Philox, KnownAnswers) {
  expect_words(philox({{0, 0, 0, 0}}, {0, 0}), 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8);
  constexpr std::uint32_t ones = 0xffffffff;
  expect_words(philox({{ones, ones, ones, ones}}, {ones, ones}), 0x408f276d, 0x41c83b0e, 0xa20bc7c6,
               0x6d5451fd);
  expect_words(philox({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, {0xa4093822, 0x299f31d0}),
               0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1);
}

TEST(Session, RefusesASecondOneAndTooManyThreads) {
  EXPECT_THROW(KernelSession(1), InternalError);
  EXPECT_THROW(use_threads(3), ConfigError);
  EXPECT_THROW(use_threads(0), ConfigError);
}

TEST(Convert, RoundsToNearestEven) {
  for (const std::int64_t n : odd_sizes) {
    Array source = random_array(ElementType::Float32, n, 1, 1e3);
    if (n > 3) {
      source.set(0, 1.0 + 0x1p-8);      // a tie, to even below
      source.set(1, 1.0 + 3 * 0x1p-8);  // a tie, to even above
      source.set(2, 1.0 + 0x1p-8 + 0x1p-20);
    }
    Array got(ElementType::BFloat16, n);
    to_bfloat16(host, static_cast<const float*>(source.data()), got.data(), n);
    Array wanted(ElementType::BFloat16, n);
    for (std::int64_t i = 0; i < n; ++i) wanted.set(i, source[i]);
    EXPECT_TRUE(got.same_bits(wanted)) << n;
  }
}

TEST(Convert, KeepsNotANumberAndInfinity) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const float source[] = {std::bit_cast<float>(0x7F800001U), std::bit_cast<float>(0xFFFFFFFFU),
                          infinity, -infinity, std::numeric_limits<float>::max()};
  std::uint16_t got[5];
  to_bfloat16(host, source, got, 5);
  for (int i = 0; i < 2; ++i)
    EXPECT_TRUE((got[i] & 0x7F80U) == 0x7F80U && (got[i] & 0x7FU) != 0) << i;
  EXPECT_EQ(got[2], 0x7F80U);
  EXPECT_EQ(got[3], 0xFF80U);
  EXPECT_EQ(got[4], 0x7F80U);
}

TEST(Convert, AccumulatesFrom) {
  for (const ElementType type : all_types) {
    for (const std::int64_t n : odd_sizes) {
      const Array source = random_array(type, n, 2);
      Array destination = random_array(accumulation_type(type), n, 3);
      std::vector<double> sums;
      std::vector<double> copies;
      for (std::int64_t i = 0; i < n; ++i) {
        sums.push_back(destination[i] + source[i]);
        copies.push_back(source[i]);
      }
      accumulate_from(host, type, source.data(), destination.data(), n, true);
      expect_near(destination, sums, rounding(accumulation_type(type)), 0, "+=");
      accumulate_from(host, type, source.data(), destination.data(), n, false);
      expect_near(destination, copies, 0, 0, "=");
    }
  }
}

TEST(Reduction, AddsInto) {
  for (const ElementType type : all_types) {
    for (const std::int64_t n : odd_sizes) {
      const Array source = random_array(type, n, 4);
      Array destination = random_array(type, n, 5);
      std::vector<double> wanted;
      for (std::int64_t i = 0; i < n; ++i) wanted.push_back(destination[i] + source[i]);
      add_into(host, type, destination.data(), source.data(), n);
      expect_near(destination, wanted, 1.01 * rounding(type), 0, "add_into");
    }
  }
}

TEST(Reduction, SumsSquares) {
  for (const ElementType type : wide_types) {
    for (const std::int64_t n : {0L, 1L, 3L, 17L, 257L, 65536L, 65537L, 300001L}) {
      const Array values = random_array(type, n, 6);
      double wanted = 0;
      for (std::int64_t i = 0; i < n; ++i) wanted += values[i] * values[i];
      use_threads(1);
      double alone = 0;
      add_sum_of_squares(host, type, values.data(), n, &alone);
      use_threads(2);
      double together = 0;
      add_sum_of_squares(host, type, values.data(), n, &together);
      EXPECT_NEAR(alone, wanted, 1e-12 * wanted);
      EXPECT_EQ(alone, together) << "bits depend on the thread count";
      double more = 3;
      add_sum_of_squares(host, type, values.data(), n, &more);
      EXPECT_EQ(more, 3 + alone);
    }
  }
  double none = 0;
  EXPECT_THROW(add_sum_of_squares(host, ElementType::BFloat16, nullptr, 0, &none), InternalError);
}

TEST(Scalars, AddScaled) {
  double sum = 0.5;
  const double number = 3;
  add_scaled(host, {.place = &number}, 0.25, &sum);
  add_scaled(host, {.value = 2}, 0.25, &sum);
  EXPECT_EQ(sum, 1.75);
}

TEST(Scalars, ClipScale) {
  const auto scale_of = [](double norm, double clip_norm, double loss = 1) {
    const double squares = norm * norm;
    double root = 0;
    double scale = 0;
    clip_scale(host, &loss, &squares, clip_norm, &root, &scale);
    if (std::isfinite(norm)) {
      EXPECT_EQ(root, norm);
    } else {
      EXPECT_FALSE(std::isfinite(root));
    }
    return scale;
  };
  EXPECT_EQ(scale_of(5.0, 0.0), 1.0) << "0 is off";
  EXPECT_EQ(scale_of(0.5, 1.0), 1.0);
  EXPECT_EQ(scale_of(0.0, 1.0), 1.0);
  EXPECT_NEAR(scale_of(4.0, 1.0), 0.25, 1e-6);
  EXPECT_LE(4.0 * scale_of(4.0, 1.0), 1.0);
  // As clip_grad_norm_ has it.
  EXPECT_DOUBLE_EQ(scale_of(4.0, 2.0), 2.0 / (4.0 + 1e-6));
  for (const double number : {std::nan(""), HUGE_VAL}) {
    EXPECT_TRUE(std::isnan(scale_of(number, 1.0)));
    EXPECT_TRUE(std::isnan(scale_of(number, 0.0)));
    EXPECT_TRUE(std::isnan(scale_of(4.0, 0.0, number)));
    EXPECT_TRUE(std::isnan(scale_of(4.0, 1.0, -number)));
  }
}

TEST(AdamWUpdate, FollowsTheFormula) {
  const AdamW options{1e-3, 0.9, 0.95, 1e-8, 0.1, 1 - std::pow(0.9, 3), 1 - std::pow(0.95, 3),
                      0.03};
  const double scale = 0.25;
  for (const ElementType type : wide_types) {
    for (const std::int64_t n : odd_sizes) {
      for (const bool with_copy : {false, true}) {
        Array parameter = random_array(type, n, 7);
        Array first = random_array(type, n, 8, 0.1);
        Array second = random_array(type, n, 9, 0.1);
        for (std::int64_t i = 0; i < n; ++i) second.set(i, std::abs(second[i]));
        const Array gradient = random_array(type, n, 10);
        std::vector<double> parameters;
        std::vector<double> firsts;
        std::vector<double> seconds;
        for (std::int64_t i = 0; i < n; ++i) {
          const double slope = gradient[i] * scale + options.l2 * parameter[i];
          const double m = options.beta1 * first[i] + (1 - options.beta1) * slope;
          const double v = options.beta2 * second[i] + (1 - options.beta2) * slope * slope;
          const double denominator =
              std::sqrt(v) / std::sqrt(options.bias_correction2) + options.epsilon;
          parameters.push_back(parameter[i] * (1 - options.learning_rate * options.weight_decay) -
                               options.learning_rate / options.bias_correction1 * m / denominator);
          firsts.push_back(m);
          seconds.push_back(v);
        }
        Array copy(ElementType::BFloat16, n);
        adamw_update(host, type, parameter.data(), first.data(), second.data(), gradient.data(), n,
                     options, {.value = scale}, with_copy ? copy.data() : nullptr);
        const double unit = rounding(type);
        expect_near(parameter, parameters, 4 * unit, 4 * unit, "parameter");
        expect_near(first, firsts, 4 * unit, unit, "first moment");
        expect_near(second, seconds, 4 * unit, unit, "second moment");
        Array rounded(ElementType::BFloat16, n);
        if (with_copy) {
          for (std::int64_t i = 0; i < n; ++i) rounded.set(i, parameter[i]);
        }
        EXPECT_TRUE(copy.same_bits(rounded));
      }
    }
  }
  EXPECT_THROW(adamw_update(host, ElementType::BFloat16, nullptr, nullptr, nullptr, nullptr, 0, {},
                            {.value = 1}, nullptr),
               InternalError);
}

TEST(MomentumUpdate, FollowsTheFormula) {
  const double rate = 1e-3;
  const double scale = 0.25;
  for (const MomentumRule rule : {MomentumRule::Sgd, MomentumRule::Lion}) {
    const Momentum options{rule, 0.9, 0.95, 0.1, 0.03};
    for (const ElementType type : wide_types) {
      for (const std::int64_t n : odd_sizes) {
        for (const bool with_copy : {false, true}) {
          Array parameter = random_array(type, n, 7);
          Array moment = random_array(type, n, 8, 0.1);
          Array gradient = random_array(type, n, 10);
          // Whose direction is that of no sign.
          parameter.set(0, 0);
          moment.set(0, 0);
          gradient.set(0, 0);
          std::vector<double> parameters;
          std::vector<double> moments;
          for (std::int64_t i = 0; i < n; ++i) {
            const double slope = gradient[i] * scale + options.l2 * parameter[i];
            const double kept = parameter[i] * (1 - rate * options.weight_decay);
            if (rule == MomentumRule::Sgd) {
              moments.push_back(options.beta1 * moment[i] + slope);
              parameters.push_back(kept - rate * moments.back());
            } else {
              const double mixed = options.beta1 * moment[i] + (1 - options.beta1) * slope;
              parameters.push_back(kept - (mixed > 0 ? rate : mixed < 0 ? -rate : 0));
              moments.push_back(options.beta2 * moment[i] + (1 - options.beta2) * slope);
            }
          }
          Array copy(ElementType::BFloat16, n);
          momentum_update(host, type, parameter.data(), moment.data(), gradient.data(), n, options,
                          {.value = rate}, {.value = scale}, with_copy ? copy.data() : nullptr);
          const double unit = rounding(type);
          expect_near(parameter, parameters, 4 * unit, 4 * unit, "parameter");
          expect_near(moment, moments, 4 * unit, unit, "moment");
          Array rounded(ElementType::BFloat16, n);
          if (with_copy) {
            for (std::int64_t i = 0; i < n; ++i) rounded.set(i, parameter[i]);
          }
          EXPECT_TRUE(copy.same_bits(rounded));
        }
      }
    }
  }
  EXPECT_THROW(momentum_update(host, ElementType::BFloat16, nullptr, nullptr, nullptr, 0, {},
                               {.value = 1}, {.value = 1}, nullptr),
               InternalError);
}

// Of a matrix of which these are all elements.
TEST(MomentumUpdate, FollowsTheFormulaOfLars) {
  const double rate = 0.5;
  const double scale = 0.25;
  for (const double limit : {0.0, 1e-3}) {
    for (const ElementType type : wide_types) {
      for (const std::int64_t n : odd_sizes) {
        Array parameter = random_array(type, n, 7);
        Array moment = random_array(type, n, 8, 0.1);
        const Array gradient = random_array(type, n, 10);
        double squares[2] = {0, 0};
        for (std::int64_t i = 0; i < n; ++i) {
          squares[0] += parameter[i] * parameter[i];
          squares[1] += gradient[i] * gradient[i];
        }
        Momentum options{MomentumRule::Lars, 0.9, 0, 0.1, 0.03};
        options.squares = squares;
        options.trust_coefficient = 0.02;
        options.trust_limit = limit;
        options.epsilon = 1e-3;
        const double norm = std::sqrt(squares[0]);
        double trust = 0.02 * norm / (std::sqrt(squares[1]) * scale + 0.03 * norm + 1e-3);
        if (limit > 0) trust = std::min(trust, limit);
        std::vector<double> parameters;
        std::vector<double> moments;
        for (std::int64_t i = 0; i < n; ++i) {
          const double slope = gradient[i] * scale + options.l2 * parameter[i];
          moments.push_back(options.beta1 * moment[i] + rate * trust * slope);
          parameters.push_back(parameter[i] * (1 - rate * options.weight_decay) - moments.back());
        }
        momentum_update(host, type, parameter.data(), moment.data(), gradient.data(), n, options,
                        {.value = rate}, {.value = scale}, nullptr);
        const double unit = rounding(type);
        expect_near(parameter, parameters, 4 * unit, 4 * unit, "parameter");
        expect_near(moment, moments, 4 * unit, unit, "moment");
      }
    }
  }
}

// Of a matrix of which these are all elements.
TEST(LambUpdate, FollowsTheFormula) {
  const double scale = 0.25;
  for (const double limit : {0.0, 0.1}) {
    for (const ElementType type : wide_types) {
      for (const std::int64_t n : odd_sizes) {
        Array parameter = random_array(type, n, 7);
        Array first = random_array(type, n, 8, 0.1);
        Array second(type, n);
        for (std::int64_t i = 0; i < n; ++i) second.set(i, first[i] * first[i] + 0.25);
        const Array gradient = random_array(type, n, 10);
        double squares[2] = {0, 1.0};
        Lamb options;
        options.rates = {.learning_rate = 0.01, .correction = 3.0, .root = 2.0};
        options.weight_decay = 0.1;
        options.l2 = 0.03;
        options.trust_limit = limit;
        std::vector<double> directions;
        std::vector<double> firsts;
        std::vector<double> seconds;
        double wanted = 1.0;
        for (std::int64_t i = 0; i < n; ++i) {
          const double slope = gradient[i] * scale + options.l2 * parameter[i];
          firsts.push_back(options.beta1 * first[i] + (1 - options.beta1) * slope);
          seconds.push_back(options.beta2 * second[i] + (1 - options.beta2) * slope * slope);
          directions.push_back(firsts.back() * 3.0 /
                                   (std::sqrt(seconds.back()) * 2.0 + options.epsilon) +
                               0.1 * parameter[i]);
          squares[0] += parameter[i] * parameter[i];
          wanted += directions.back() * directions.back();
        }
        add_lamb_squares(host, type, parameter.data(), first.data(), second.data(), gradient.data(),
                         n, options, {.value = scale}, &squares[1]);
        const double unit = rounding(type);
        EXPECT_NEAR(squares[1], wanted, (32 * unit + 1e-13) * wanted);
        double nothing = 2.0;
        add_lamb_squares(host, type, parameter.data(), first.data(), second.data(), gradient.data(),
                         n, options, {.value = std::nan("")}, &nothing);
        EXPECT_EQ(nothing, 2.0);
        options.squares = squares;
        double trust = std::sqrt(squares[0] / squares[1]);
        if (limit > 0) trust = std::min(trust, limit);
        std::vector<double> parameters;
        for (std::int64_t i = 0; i < n; ++i)
          parameters.push_back(parameter[i] -
                               0.01 * trust * directions[static_cast<std::size_t>(i)]);
        Array copy(ElementType::BFloat16, n);
        lamb_update(host, type, parameter.data(), first.data(), second.data(), gradient.data(), n,
                    options, {.value = scale}, n % 2 == 0 ? copy.data() : nullptr);
        expect_near(parameter, parameters, 16 * unit, 16 * unit, "parameter");
        expect_near(first, firsts, 4 * unit, 4 * unit, "first moment");
        expect_near(second, seconds, 4 * unit, 4 * unit, "second moment");
        Array rounded(ElementType::BFloat16, n);
        for (std::int64_t i = 0; n % 2 == 0 && i < n; ++i) rounded.set(i, parameter[i]);
        EXPECT_TRUE(copy.same_bits(rounded));
      }
    }
  }
  EXPECT_THROW(lamb_update(host, ElementType::BFloat16, nullptr, nullptr, nullptr, nullptr, 0, {},
                           {.value = 1}, nullptr),
               InternalError);
}

TEST(FillNormal, FollowsBoxAndMuller) {
  const PhiloxKey key = philox_key(1, "weight");
  for (const ElementType type : all_types) {
    Array got(type, 1001);
    fill_normal(host, type, got.data(), got.count(), key, 0.02, 0);
    std::vector<double> wanted;
    for (std::uint64_t e = 0; e < 1001; ++e) {
      const PhiloxBlock block = philox_at(key, 0, 0, e / 4);
      const double uniform = (block.word[e % 4 / 2 * 2] + 0.5) / 4294967296.0;
      const double angle =
          2 * std::numbers::pi * (block.word[e % 4 / 2 * 2 + 1] + 0.5) / 4294967296.0;
      const double radius = 0.02 * std::sqrt(-2 * std::log(uniform));
      wanted.push_back(radius * (e % 2 == 0 ? std::cos(angle) : std::sin(angle)));
    }
    expect_near(got, wanted, 2 * rounding(type), 1e-16, "fill_normal");
  }
}

TEST(FillNormal, StepsAndSamplesHaveNumbersOfTheirOwn) {
  const PhiloxKey key = philox_key(4, "noise");
  Array got(ElementType::Float64, 9);
  fill_normal(host, got.type(), got.data(), got.count(), key, 1.0, 3, 5, (1ULL << 33) + 7);
  std::vector<double> wanted;
  for (std::uint64_t e = 3; e < 12; ++e) {
    const PhiloxBlock block = philox_at(key, 5, (1ULL << 33) + 7, e / 4);
    const double uniform = (block.word[e % 4 / 2 * 2] + 0.5) / 4294967296.0;
    const double angle =
        2 * std::numbers::pi * (block.word[e % 4 / 2 * 2 + 1] + 0.5) / 4294967296.0;
    const double radius = std::sqrt(-2 * std::log(uniform));
    wanted.push_back(radius * (e % 2 == 0 ? std::cos(angle) : std::sin(angle)));
  }
  expect_near(got, wanted, 2 * rounding(got.type()), 1e-15, "noise");
}

TEST(FillNormal, BitsDoNotDependOnTheCut) {
  const PhiloxKey key = philox_key(2, "weight");
  Array whole(ElementType::Float32, 5000);
  fill_normal(host, whole.type(), whole.data(), whole.count(), key, 1.0, 0);
  for (const std::int64_t first : {0L, 1L, 2L, 3L, 4L, 1023L, 4999L}) {
    for (const std::int64_t n : {1L, 2L, 3L, 700L}) {
      if (first + n > whole.count()) continue;
      Array part(ElementType::Float32, n);
      fill_normal(host, part.type(), part.data(), n, key, 1.0, first);
      for (std::int64_t i = 0; i < n; ++i)
        ASSERT_EQ(part[i], whole[first + i]) << first << " " << i;
    }
  }
  expect_thread_independent([&] {
    Array again(ElementType::Float64, 5000);
    fill_normal(host, again.type(), again.data(), again.count(), key, 1.0, 0);
    return again;
  });
}

// Ranks on unlike machines must start from equal weights: one known hash of the bits, for all of
// them.
TEST(FillNormal, HasKnownBits) {
  Array values(ElementType::Float64, 5000);
  fill_normal(host, values.type(), values.data(), values.count(), philox_key(1, "weight"), 1.0, 0);
  std::uint64_t hash = 0xCBF29CE484222325ULL;
  for (std::int64_t i = 0; i < values.count(); ++i) {
    hash = (hash ^ std::bit_cast<std::uint64_t>(values[i])) * 0x100000001B3ULL;
  }
  EXPECT_EQ(hash, 0xd612feb7051bbb48ULL) << std::hex << hash;
}

TEST(FillNormal, HasItsMoments) {
  const std::int64_t n = 1 << 20;
  Array values(ElementType::Float32, n);
  fill_normal(host, values.type(), values.data(), n, philox_key(3, "weight"), 0.5, 0);
  double mean = 0;
  double square = 0;
  double fourth = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const double value = values[i] / 0.5;
    mean += value / static_cast<double>(n);
    square += value * value / static_cast<double>(n);
    fourth += value * value * value * value / static_cast<double>(n);
  }
  EXPECT_NEAR(mean, 0, 0.005);
  EXPECT_NEAR(square, 1, 0.007);
  EXPECT_NEAR(fourth, 3, 0.05);
}

}  // namespace garonne::kernels::test
