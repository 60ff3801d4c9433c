// What the members of a tensor group put together, against kernels that see the whole.
#include "kernels/arrays.hpp"

#include "kernels/cross_entropy.hpp"
#include "kernels/instance_moments.hpp"
#include "kernels/instance_norm.hpp"
#include "kernels/row_deal.hpp"
#include "kernels/scalar.hpp"

#include <cmath>
#include <numeric>
#include <random>

namespace garonne::kernels::test {

namespace {

double* doubles(Array& array) {
  return static_cast<double*>(array.data());
}

TEST(GatheredCrossEntropy, IsThatOfTheWholeVocabulary) {
  constexpr ElementType type = ElementType::Float64;
  const std::int64_t rows = 13;
  // One piece is padding only.
  const std::vector<VocabularyPiece> pieces = {{0, 5, 8}, {5, 8, 8}, {13, 3, 8}, {16, 0, 8}};
  const std::int64_t vocabulary = 16;
  const auto count = static_cast<std::int64_t>(pieces.size());
  const Array logits = random_array(type, rows * vocabulary, 1, 20);
  std::vector<std::int64_t> targets;
  for (std::int64_t row = 0; row < rows; ++row) targets.push_back(row * 7 % vocabulary);

  Array whole = logits;
  Array row_losses(type, rows);
  double loss = NAN;
  cross_entropy(host, type, whole.data(), targets.data(), 1.0 / 13, true, doubles(row_losses),
                &loss, rows, vocabulary);

  std::vector<Array> parts;
  std::vector<double> statistics(static_cast<std::size_t>(count * 2 * rows), NAN);
  for (std::int64_t k = 0; k < count; ++k) {
    const VocabularyPiece& piece = pieces[static_cast<std::size_t>(k)];
    parts.emplace_back(type, rows * piece.width, 1e9);
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t j = 0; j < piece.columns; ++j)
        parts.back().set(row * piece.width + j, logits[row * vocabulary + piece.first + j]);
    }
    double* const own = statistics.data() + k * 2 * rows;
    logit_statistics(host, type, parts.back().data(), targets.data(), piece, own, own + rows, rows);
  }
  double together = NAN;
  gathered_cross_entropy(host, statistics.data(), &together, count, rows);
  EXPECT_NEAR(together, loss, 1e-13 * loss);

  std::vector<double> of_statistics(statistics.size(), NAN);
  gathered_cross_entropy_gradient(host, statistics.data(), 3, of_statistics.data(), count, rows);
  for (std::int64_t k = 0; k < count; ++k) {
    const VocabularyPiece& piece = pieces[static_cast<std::size_t>(k)];
    const double* const own = statistics.data() + k * 2 * rows;
    const double* const given = of_statistics.data() + k * 2 * rows;
    Array gradient(type, rows * piece.width, NAN);
    logit_gradient(host, type, parts[static_cast<std::size_t>(k)].data(), targets.data(), piece,
                   own, given, given + rows, gradient.data(), rows);
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t j = 0; j < piece.columns; ++j) {
        EXPECT_NEAR(gradient[row * piece.width + j], 3 * whole[row * vocabulary + piece.first + j],
                    1e-14);
      }
    }
  }
}

// Statistics of parts of the points, put together, and the gradients that go back through them, are
// those of the norm of the whole.
TEST(GatheredStatistics, AreThoseOfTheWholeField) {
  const std::int64_t batch = 2;
  const std::int64_t points = 50;
  const std::int64_t channels = 19;
  const double epsilon = 1e-5;
  // By member; none of them has point 49, which is in a slot without a row.
  const std::vector<std::vector<PointRun>> members = {
      {{0, 7}, {20, 5}}, {{7, 13}}, {}, {{25, 1}, {26, 23}}};
  const std::vector<std::int64_t> counted = {12, 13, 0, 24};
  const auto count = static_cast<std::int64_t>(members.size());
  for (const ElementType type : wide_types) {
    const ElementType state = accumulation_type(type);
    const std::int64_t real = points - 1;
    Array x = random_array(type, batch * points * channels, 1);
    Array real_x(type, batch * real * channels);
    const Array given = random_array(type, batch * points * channels, 2);
    Array real_given(type, batch * real * channels);
    const auto at = [&](std::int64_t i) {  // in x, of an element of real_x
      return i / (real * channels) * points * channels + i % (real * channels);
    };
    for (std::int64_t i = 0; i < real_x.count(); ++i) {
      real_x.set(i, x[at(i)]);
      real_given.set(i, given[at(i)]);
    }
    const Array gain = random_array(type, channels, 3);
    const Array bias = random_array(type, channels, 4);
    Array workspace(ElementType::Float64,
                    instance_norm_workspace_bytes(batch, points, channels) / 8);
    Array y(type, real_x.count());
    Array mean(state, batch * channels);
    Array inverse(state, batch * channels);
    instance_norm_forward(host, type, real_x.data(), gain.data(), bias.data(), epsilon, y.data(),
                          mean.data(), inverse.data(), workspace.data(), batch, real, channels);

    const std::int64_t statistics = 2 * batch * channels;
    std::vector<double> moments(static_cast<std::size_t>(count * statistics), NAN);
    for (std::int64_t k = 0; k < count; ++k) {
      instance_norm_moments(host, type, x.data(), members[static_cast<std::size_t>(k)],
                            moments.data() + k * statistics, workspace.data(), batch, points,
                            channels);
    }
    const GatheredMoments gathered{moments.data(), counted, batch, channels, epsilon};
    Array own_mean(state, batch * channels, NAN);
    Array own_inverse(state, batch * channels, NAN);
    gathered_statistics(host, type, gathered, own_mean.data(), own_inverse.data());
    for (std::int64_t i = 0; i < mean.count(); ++i) {
      EXPECT_NEAR(own_mean[i], mean[i], 8 * rounding(state));
      EXPECT_NEAR(own_inverse[i], inverse[i], 8 * rounding(state));
    }

    Array wanted(type, real_x.count());
    Array of_gain(state, channels);
    Array of_bias(state, channels);
    instance_norm_backward(host, type, real_given.data(), real_x.data(), gain.data(), mean.data(),
                           inverse.data(), wanted.data(), of_gain.data(), of_bias.data(), false,
                           workspace.data(), batch, real, channels);
    // Every member differentiates its own points: those of the others have no gradient there.
    std::vector<double> sum(static_cast<std::size_t>(real_x.count()), 0.0);
    std::vector<double> of_moments(moments.size(), 0.0);
    Array parts_gain(state, channels, 0.0);
    Array parts_bias(state, channels, 0.0);
    Array wide_gain(ElementType::Float64, channels);
    for (std::int64_t c = 0; c < channels; ++c) wide_gain.set(c, gain[c]);
    const auto is_in = [&](std::int64_t k, std::int64_t point) {
      bool inside = false;
      for (const PointRun& run : members[static_cast<std::size_t>(k)])
        inside |= point >= run.first && point < run.first + run.count;
      return inside;
    };
    for (std::int64_t k = 0; k < count; ++k) {
      Array mine(type, given.count(), 0.0);
      for (std::int64_t i = 0; i < given.count(); ++i) {
        if (is_in(k, i / channels % points)) mine.set(i, given[i]);
      }
      Array gradient(type, given.count(), NAN);
      Array sums(ElementType::Float64, batch * 2 * channels, NAN);
      instance_norm_apply_backward(host, type, mine.data(), x.data(), gain.data(), own_mean.data(),
                                   own_inverse.data(), gradient.data(), doubles(sums),
                                   workspace.data(), batch, points, channels);
      for (std::int64_t i = 0; i < real_x.count(); ++i)
        sum[static_cast<std::size_t>(i)] += gradient[at(i)];
      instance_parameter_gradients(host, type, doubles(sums), parts_gain.data(), true,
                                   parts_bias.data(), true, batch, channels);
      std::vector<double> part(moments.size(), NAN);
      gathered_statistics_gradient(host, gathered, doubles(sums), doubles(wide_gain), part.data());
      for (std::size_t i = 0; i < part.size(); ++i) of_moments[i] += part[i];
    }
    for (std::int64_t k = 0; k < count; ++k) {
      Array own(state, batch * channels, NAN);
      Array factor = own;
      Array constant(type, batch * channels, NAN);
      Array one(type, channels, NAN);
      Array gradient(type, given.count(), NAN);
      instance_moments_gradient(
          host, type, x.data(), members[static_cast<std::size_t>(k)],
          moments.data() + k * statistics, of_moments.data() + k * statistics, gradient.data(),
          {own.data(), factor.data(), constant.data(), one.data()}, batch, points, channels);
      for (std::int64_t i = 0; i < gradient.count(); ++i) {
        if (!is_in(k, i / channels % points)) {
          ASSERT_EQ(gradient[i], 0);
        }
      }
      for (std::int64_t i = 0; i < real_x.count(); ++i)
        sum[static_cast<std::size_t>(i)] += gradient[at(i)];
    }
    expect_near(wanted, sum, 32 * rounding(type), 64 * rounding(type), "gradient of x");
    for (std::int64_t c = 0; c < channels; ++c) {
      EXPECT_NEAR(parts_gain[c], of_gain[c], 200 * rounding(state));
      EXPECT_NEAR(parts_bias[c], of_bias[c], 200 * rounding(state));
    }
  }
}

TEST(GatheredStatistics, ParameterGradientsAreWrittenOrAdded) {
  const std::vector<double> sums = {1, 2, 3, 4, 10, 20, 30, 40};  // [batch, 2, channels]
  for (const ElementType type : all_types) {
    Array gain(accumulation_type(type), 2, 100);
    Array bias(accumulation_type(type), 2, 100);
    instance_parameter_gradients(host, type, sums.data(), gain.data(), true, bias.data(), false, 2,
                                 2);
    EXPECT_EQ(gain[0], 133);
    EXPECT_EQ(gain[1], 144);
    EXPECT_EQ(bias[0], 11);
    EXPECT_EQ(bias[1], 22);
  }
}

TEST(RowDeal, GathersWhatWasDealt) {
  std::mt19937 random(7);
  for (int round = 0; round < 50; ++round) {
    const auto number = [&](std::int64_t least, std::int64_t most) {
      return std::uniform_int_distribution<std::int64_t>(least, most)(random);
    };
    const std::int64_t lines = number(1, 3);
    const std::int64_t rows = number(1, 9);
    const std::int64_t width = number(1, 5);
    std::vector<std::int64_t> order(static_cast<std::size_t>(rows));
    std::iota(order.begin(), order.end(), std::int64_t{0});
    std::shuffle(order.begin(), order.end(), random);
    const Array whole = random_array(ElementType::Float64, lines * rows * width, 1);
    Array gathered(ElementType::Float64, whole.count(), NAN);
    std::size_t next = 0;
    while (next < order.size()) {
      std::vector<std::int64_t> slots;
      const std::int64_t count = number(1, 4);
      for (std::int64_t slot = 0; slot < count; ++slot)
        slots.push_back(next < order.size() && number(0, 3) > 0 ? order[next++] : -1);
      Array dealt(ElementType::Float64, lines * count * width, -1);
      deal_rows(host, static_cast<const double*>(whole.data()), slots, doubles(dealt), lines, rows,
                width);
      for (std::int64_t i = 0; i < dealt.count(); ++i) {
        const std::int64_t row = slots[static_cast<std::size_t>(i / width % count)];
        const std::int64_t line = i / width / count;
        EXPECT_EQ(dealt[i], row < 0 ? -1 : whole[(line * rows + row) * width + i % width]);
      }
      gather_rows(host, doubles(dealt), slots, doubles(gathered), lines, rows, width);
    }
    EXPECT_TRUE(gathered.same_bits(whole));
  }
}

TEST(Scalar, MeanAndItsGradient) {
  const double numbers[] = {0.1, 0.2, 1e20};
  double mean = NAN;
  mean_of(host, std::vector<Scalar>{{&numbers[0]}, {&numbers[1]}, {&numbers[2]}, {nullptr, -1e20}},
          &mean);
  EXPECT_EQ(mean, (0.1 + 0.2 + 1e20 - 1e20) / 4);
  double gradient = NAN;
  mean_of_gradient(host, {&numbers[0]}, 3, &gradient);
  EXPECT_EQ(gradient, 0.1 / 3);
  mean_of_gradient(host, {nullptr, 0.7}, 3, &gradient);
  EXPECT_EQ(gradient, 0.7 / 3);
}

}  // namespace

}  // namespace garonne::kernels::test
