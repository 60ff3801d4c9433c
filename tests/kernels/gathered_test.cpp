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

// A field whose points lie with several members, and the norm of the whole.
class DividedNorm {
 public:
  explicit DividedNorm(ElementType type) : type_(type) {
    for (std::int64_t i = 0; i < real_x_.count(); ++i) {
      real_x_.set(i, x_[at(i)]);
      real_given_.set(i, given_[at(i)]);
    }
    instance_norm_forward(host, type, real_x_.data(), gain_.data(), bias_.data(), epsilon_,
                          y_.data(), mean_.data(), inverse_.data(), workspace_.data(), batch_,
                          real_, channels_);
    for (std::int64_t k = 0; k < count_; ++k) {
      instance_norm_moments(host, type, x_.data(), members_[static_cast<std::size_t>(k)],
                            moments_.data() + k * statistics_, workspace_.data(), batch_, points_,
                            channels_);
    }
    gathered_statistics(host, type, gathered(), own_mean_.data(), own_inverse_.data());
  }

  void expect_statistics() const {
    for (std::int64_t i = 0; i < mean_.count(); ++i) {
      EXPECT_NEAR(own_mean_[i], mean_[i], 8 * rounding(state_));
      EXPECT_NEAR(own_inverse_[i], inverse_[i], 8 * rounding(state_));
    }
  }

  void expect_gradients() {
    Array wanted(type_, real_x_.count());
    Array of_gain(state_, channels_);
    Array of_bias(state_, channels_);
    instance_norm_backward(host, type_, real_given_.data(), real_x_.data(), gain_.data(),
                           mean_.data(), inverse_.data(), wanted.data(), of_gain.data(),
                           of_bias.data(), false, workspace_.data(), batch_, real_, channels_);
    for (std::int64_t k = 0; k < count_; ++k) add_apply_backward(k);
    for (std::int64_t k = 0; k < count_; ++k) add_moments_backward(k);
    expect_near(wanted, sum_, 32 * rounding(type_), 64 * rounding(type_), "gradient of x");
    for (std::int64_t c = 0; c < channels_; ++c) {
      EXPECT_NEAR(parts_gain_[c], of_gain[c], 200 * rounding(state_));
      EXPECT_NEAR(parts_bias_[c], of_bias[c], 200 * rounding(state_));
    }
  }

 private:
  // In x_, of an element of real_x_.
  std::int64_t at(std::int64_t i) const {
    return i / (real_ * channels_) * points_ * channels_ + i % (real_ * channels_);
  }
  GatheredMoments gathered() const {
    return {moments_.data(), counted_, batch_, channels_, epsilon_};
  }
  bool is_in(std::int64_t k, std::int64_t point) const {
    bool inside = false;
    for (const PointRun& run : members_[static_cast<std::size_t>(k)])
      inside |= point >= run.first && point < run.first + run.count;
    return inside;
  }

  // Every member differentiates its own points: those of the others have no gradient there.
  void add_apply_backward(std::int64_t k) {
    Array mine(type_, given_.count(), 0.0);
    for (std::int64_t i = 0; i < given_.count(); ++i) {
      if (is_in(k, i / channels_ % points_)) mine.set(i, given_[i]);
    }
    Array gradient(type_, given_.count(), NAN);
    Array sums(ElementType::Float64, batch_ * 2 * channels_, NAN);
    instance_norm_apply_backward(host, type_, mine.data(), x_.data(), gain_.data(),
                                 own_mean_.data(), own_inverse_.data(), gradient.data(),
                                 doubles(sums), workspace_.data(), batch_, points_, channels_);
    for (std::int64_t i = 0; i < real_x_.count(); ++i)
      sum_[static_cast<std::size_t>(i)] += gradient[at(i)];
    instance_parameter_gradients(host, type_, doubles(sums), parts_gain_.data(), true,
                                 parts_bias_.data(), true, batch_, channels_);
    Array wide_gain(ElementType::Float64, channels_);
    for (std::int64_t c = 0; c < channels_; ++c) wide_gain.set(c, gain_[c]);
    std::vector<double> part(moments_.size(), NAN);
    gathered_statistics_gradient(host, gathered(), doubles(sums), doubles(wide_gain), part.data());
    for (std::size_t i = 0; i < part.size(); ++i) of_moments_[i] += part[i];
  }

  void add_moments_backward(std::int64_t k) {
    Array own(state_, batch_ * channels_, NAN);
    Array factor = own;
    Array constant(type_, batch_ * channels_, NAN);
    Array one(type_, channels_, NAN);
    Array gradient(type_, given_.count(), NAN);
    instance_moments_gradient(
        host, type_, x_.data(), members_[static_cast<std::size_t>(k)],
        moments_.data() + k * statistics_, of_moments_.data() + k * statistics_, gradient.data(),
        {own.data(), factor.data(), constant.data(), one.data()}, batch_, points_, channels_);
    for (std::int64_t i = 0; i < gradient.count(); ++i) {
      if (!is_in(k, i / channels_ % points_)) {
        ASSERT_EQ(gradient[i], 0);
      }
    }
    for (std::int64_t i = 0; i < real_x_.count(); ++i)
      sum_[static_cast<std::size_t>(i)] += gradient[at(i)];
  }

  const std::int64_t batch_ = 2;
  const std::int64_t points_ = 50;
  const std::int64_t channels_ = 19;
  const double epsilon_ = 1e-5;
  // By member; none of them has point 49, which is in a slot without a row.
  const std::vector<std::vector<PointRun>> members_ = {
      {{0, 7}, {20, 5}}, {{7, 13}}, {}, {{25, 1}, {26, 23}}};
  const std::vector<std::int64_t> counted_ = {12, 13, 0, 24};
  const std::int64_t count_ = static_cast<std::int64_t>(members_.size());
  const std::int64_t real_ = points_ - 1;
  const std::int64_t statistics_ = 2 * batch_ * channels_;

  const ElementType type_;
  const ElementType state_ = accumulation_type(type_);
  Array x_ = random_array(type_, batch_* points_* channels_, 1);
  Array real_x_{type_, batch_* real_* channels_};
  const Array given_ = random_array(type_, batch_* points_* channels_, 2);
  Array real_given_{type_, batch_* real_* channels_};
  const Array gain_ = random_array(type_, channels_, 3);
  const Array bias_ = random_array(type_, channels_, 4);
  Array workspace_{ElementType::Float64,
                   instance_norm_workspace_bytes(batch_, points_, channels_) / 8};
  // Of the whole.
  Array y_{type_, batch_* real_* channels_};
  Array mean_{state_, batch_* channels_};
  Array inverse_{state_, batch_* channels_};
  // Of what the members put together.
  std::vector<double> moments_ =
      std::vector<double>(static_cast<std::size_t>(count_ * statistics_), NAN);
  Array own_mean_{state_, batch_* channels_, NAN};
  Array own_inverse_{state_, batch_* channels_, NAN};
  std::vector<double> sum_ =
      std::vector<double>(static_cast<std::size_t>(batch_ * real_ * channels_), 0.0);
  std::vector<double> of_moments_ =
      std::vector<double>(static_cast<std::size_t>(count_ * statistics_), 0.0);
  Array parts_gain_{state_, channels_, 0.0};
  Array parts_bias_{state_, channels_, 0.0};
};

// Statistics of parts of the points, put together, and the gradients that go back through them, are
// those of the norm of the whole.
TEST(GatheredStatistics, AreThoseOfTheWholeField) {
  for (const ElementType type : wide_types) {
    DividedNorm norm(type);
    norm.expect_statistics();
    norm.expect_gradients();
    if (::testing::Test::HasFatalFailure()) return;
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
