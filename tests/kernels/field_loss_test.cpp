// Losses of fields against formulas in long double, point by point, and their gradients against
// differences of those.
#include "kernels/arrays.hpp"

#include "kernels/field_loss.hpp"

#include <cmath>
#include <random>

namespace garonne::kernels::test {

namespace {

using Wide = long double;

// A comparison with all that it points to. The grid is [rows, points in a row].
struct Problem {
  explicit Problem(ElementType type, std::uint32_t seed, std::int64_t of_a_sample = 1)
      : random(seed), members(of_a_sample) {
    batch = number(1, 3);
    channels = number(1, 3);
    rows = number(4, 7);
    in_row = number(4, 6);
    points = rows * in_row;
    steps = number(1, 2);
    step = number(0, steps - 1);
    prediction = filled(type, batch * members * points * channels);
    target = filled(type, steps * batch * channels * points);
    mask = Array(type, steps * batch * channels * points);
    for (std::int64_t i = 0; i < mask.count(); ++i) mask.set(i, number(0, 3) == 0 ? 0 : 1);
    for (std::int64_t r = 0; r < rows; ++r) weights.push_back(0.5 + uniform());
  }

  std::int64_t number(std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(random);
  }
  double uniform() { return std::uniform_real_distribution<double>(0, 1)(random); }
  Array filled(ElementType type, std::int64_t count) {
    Array array(type, count);
    for (std::int64_t i = 0; i < count; ++i) array.set(i, 4 * uniform() - 2);
    return array;
  }
  void decode(bool by_point) {
    by_points = by_point;
    for (std::int64_t i = 0; i < channels * (by_point ? points : 1); ++i) {
      deviation.push_back(0.5 + uniform());
      mean.push_back(uniform() - 0.5);
    }
  }

  FieldComparison comparison() {
    FieldComparison fields;
    fields.type = prediction.type();
    fields.prediction = prediction.data();
    fields.target = target.data();
    fields.target_step = step;
    fields.mask = masked ? mask.data() : nullptr;
    fields.mask_step = step;
    fields.batch = batch;
    fields.members = members;
    fields.points = points;
    fields.channels = channels;
    fields.deviation = deviation.empty() ? nullptr : deviation.data();
    fields.mean = mean.empty() ? nullptr : mean.data();
    fields.decodes_by_point = by_points;
    fields.runs = runs;
    fields.row_weights = area ? weights.data() : nullptr;
    fields.points_in_row = in_row;
    fields.differences = differences;
    fields.scratch = scratch.data();
    fields.pairs_in_group = joint ? channels : 1;
    fields.relative = relative;
    return fields;
  }

  std::mt19937 random;
  std::int64_t members;
  std::int64_t batch, channels, rows, in_row, points, steps, step;
  Array prediction{ElementType::Float64, 0};
  Array target{ElementType::Float64, 0};
  Array mask{ElementType::Float64, 0};
  bool masked = false, by_points = false, area = false, relative = false, joint = false;
  std::vector<double> weights, deviation, mean, scratch;
  std::vector<PointRun> runs;
  std::vector<AxisDifference> differences;
};

// The forms that losses have, each with and without mask and decoding.
Problem problem_of(ElementType type, std::uint32_t seed) {
  const std::uint32_t form = seed / 6 % 6;
  Problem p(type, seed, form < 5 ? 1 : 2 + seed % 4);
  p.masked = seed % 2 == 1;
  if (seed / 2 % 3 > 0) p.decode(seed / 2 % 3 == 2);
  p.relative = form < 3;
  p.joint = form == 0;
  p.area = form > 3;
  if (form == 2) {
    const bool periodic = p.number(0, 1) == 1;
    p.differences = {{1, p.rows, p.in_row, periodic}, {p.rows, p.in_row, 1, !periodic}};
    p.scratch.resize(static_cast<std::size_t>(3 * p.points), NAN);
  }
  if (form == 2 || p.number(0, 1) == 0) {
    p.runs = {{0, p.points}};
  } else {
    p.runs = {{p.in_row, p.in_row}, {3 * p.in_row, (p.rows - 3) * p.in_row}};
  }
  return p;
}

// One pair, decoded, by grid position; nothing of the kernel's is used.
struct Reference {
  Reference(const Problem& problem, std::int64_t pair)
      : p(problem), sample(pair / p.channels), channel(pair % p.channels) {}

  bool there(std::int64_t point) const { return !p.masked || p.mask[of_step(point)] != 0; }
  bool counts(std::int64_t point) const {
    bool inside = false;
    for (const PointRun& run : p.runs)
      inside |= point >= run.first && point < run.first + run.count;
    return inside;
  }
  Wide deviation(std::int64_t point) const { return decoder(p.deviation, point, 1); }
  Wide error(std::int64_t point, std::int64_t member = 0) const {
    const std::int64_t field = sample * p.members + member;
    const Wide predicted = p.prediction[(field * p.points + point) * p.channels + channel];
    return there(point) ? deviation(point) * (predicted - p.target[of_step(point)]) : 0;
  }
  // Of an ensemble, over all ordered pairs of members.
  Wide score(std::int64_t point) const {
    Wide distances = 0;
    Wide differences = 0;
    for (std::int64_t m = 0; m < p.members; ++m) {
      distances += std::abs(error(point, m));
      for (std::int64_t n = 0; n < p.members; ++n)
        differences += std::abs(error(point, m) - error(point, n));
    }
    const auto count = static_cast<Wide>(p.members);
    return distances / count - differences / (2 * count * (count - 1));
  }
  Wide wanted(std::int64_t point) const {
    const Wide value = deviation(point) * p.target[of_step(point)] + decoder(p.mean, point, 0);
    return there(point) ? value : 0;
  }
  // Along an axis of the grid (0 rows, 1 in a row), of what `value` says; 0 where a value that it
  // is made of is not there.
  template <typename Value>
  Wide difference(int axis, std::int64_t point, const Value& value) const {
    const std::int64_t count = axis == 0 ? p.rows : p.in_row;
    const std::int64_t stride = axis == 0 ? p.in_row : 1;
    const std::int64_t at = point / stride % count;
    const auto neighbour = [&](std::int64_t offset) {
      return point + ((at + offset + count) % count - at) * stride;
    };
    std::vector<std::pair<std::int64_t, Wide>> terms = {{1, 0.5L}, {-1, -0.5L}};
    if (!p.differences[static_cast<std::size_t>(axis)].periodic && at == 0)
      terms = {{0, -11 / 6.0L}, {1, 3}, {2, -1.5L}, {3, 1 / 3.0L}};
    if (!p.differences[static_cast<std::size_t>(axis)].periodic && at + 1 == count)
      terms = {{0, 11 / 6.0L}, {-1, -3}, {-2, 1.5L}, {-3, -1 / 3.0L}};
    Wide sum = 0;
    for (const auto& [offset, factor] : terms) {
      if (!there(neighbour(offset))) return 0;
      sum += factor * static_cast<Wide>(count) * value(neighbour(offset));
    }
    return sum;
  }

  const Problem& p;
  std::int64_t sample;
  std::int64_t channel;

 private:
  std::int64_t of_step(std::int64_t point) const {
    return ((p.step * p.batch + sample) * p.channels + channel) * p.points + point;
  }
  Wide decoder(const std::vector<double>& table, std::int64_t point, Wide none) const {
    if (table.empty()) return none;
    return table[static_cast<std::size_t>(p.by_points ? channel * p.points + point : channel)];
  }
};

struct Sums {
  Wide error = 0;
  Wide wanted = 0;
  Wide weights = 0;
};

Sums sums_of(const Problem& p, std::int64_t group) {
  const std::int64_t pairs = p.joint ? p.channels : 1;
  Sums sums;
  for (std::int64_t pair = group * pairs; pair < (group + 1) * pairs; ++pair) {
    const Reference field(p, pair);
    for (std::int64_t point = 0; point < p.points; ++point) {
      if (!field.counts(point)) continue;
      const Wide weight = p.area ? p.weights[static_cast<std::size_t>(point / p.in_row)] : 1;
      sums.error +=
          weight * (p.members > 1 ? field.score(point) : field.error(point) * field.error(point));
      if (p.relative) sums.wanted += field.wanted(point) * field.wanted(point);
      // Without a mask the points are counted.
      sums.weights += !field.there(point) ? 0 : p.masked ? weight : 1;
      for (int axis = 0; axis < static_cast<int>(p.differences.size()); ++axis) {
        const Wide of_error =
            field.difference(axis, point, [&](std::int64_t at) { return field.error(at); });
        const Wide of_wanted =
            field.difference(axis, point, [&](std::int64_t at) { return field.wanted(at); });
        sums.error += of_error * of_error;
        sums.wanted += of_wanted * of_wanted;
      }
    }
  }
  return sums;
}

std::int64_t groups_of(const Problem& p) {
  return p.batch * (p.joint ? 1 : p.channels);
}

Wide loss_of(const Problem& p) {
  Wide sum = 0;
  for (std::int64_t group = 0; group < groups_of(p); ++group) {
    const Sums sums = sums_of(p, group);
    if (p.relative) {
      sum += std::sqrt(sums.error) / (std::sqrt(sums.wanted) + 1e-8L);
    } else if (sums.weights != 0) {
      sum += sums.error / sums.weights;
    }
  }
  return sum / static_cast<Wide>(groups_of(p));
}

constexpr std::uint32_t problems = 72;

TEST(FieldLoss, NormsAndLossAreTheFormulas) {
  for (const ElementType type : all_types) {
    for (std::uint32_t seed = 0; seed < problems; ++seed) {
      Problem p = problem_of(type, seed);
      const std::int64_t groups = groups_of(p);
      std::vector<double> norms(static_cast<std::size_t>(3 * groups), NAN);
      field_norms(host, p.comparison(), norms.data());
      for (std::int64_t group = 0; group < groups; ++group) {
        const Sums sums = sums_of(p, group);
        const auto near = [&](std::int64_t which, Wide wanted) {
          const auto value = static_cast<double>(wanted);
          EXPECT_NEAR(norms[static_cast<std::size_t>(which * groups + group)], value,
                      1e-12 * (1 + std::abs(value)))
              << "norm " << which << " of problem " << seed;
        };
        near(0, sums.error);
        near(1, sums.wanted);
        near(2, sums.weights);
      }
      double loss = NAN;
      field_loss(host, p.comparison(), &loss);
      const auto wanted = static_cast<double>(loss_of(p));
      EXPECT_NEAR(loss, wanted, 1e-12 * (1 + std::abs(wanted))) << "problem " << seed;
    }
  }
}

TEST(FieldLoss, GradientIsTheLimitOfDifferences) {
  for (std::uint32_t seed = 0; seed < problems; ++seed) {
    Problem p = problem_of(ElementType::Float64, seed);
    Array gradient(ElementType::Float64, p.prediction.count(), NAN);
    const double outer = 3;
    field_loss_gradient(host, p.comparison(), {&outer}, gradient.data());
    // Scores of ensembles are straight but for kinks, which are to be stepped over by none.
    const double step = p.members > 1 ? 1e-7 : 1e-4;
    for (std::int64_t i = 0; i < p.prediction.count(); ++i) {
      const double value = p.prediction[i];
      p.prediction.set(i, value + step);
      const Wide up = loss_of(p);
      p.prediction.set(i, value - step);
      const Wide down = loss_of(p);
      p.prediction.set(i, value);
      const auto wanted = static_cast<double>(outer * (up - down) / (2 * Wide{step}));
      EXPECT_NEAR(gradient[i], wanted, 1e-6 * (1 + std::abs(wanted))) << "problem " << seed;
    }
  }
}

TEST(FieldLoss, NarrowTypesRoundTheGradientOnce) {
  for (const ElementType type : {ElementType::Float32, ElementType::BFloat16}) {
    for (std::uint32_t seed = 0; seed < problems; ++seed) {
      Problem narrow = problem_of(type, seed);
      Array gradient(type, narrow.prediction.count(), NAN);
      field_loss_gradient(host, narrow.comparison(), {nullptr, 2}, gradient.data());
      // The same numbers in float64.
      Problem wide = problem_of(ElementType::Float64, seed);
      for (std::int64_t i = 0; i < narrow.prediction.count(); ++i)
        wide.prediction.set(i, narrow.prediction[i]);
      for (std::int64_t i = 0; i < narrow.target.count(); ++i) wide.target.set(i, narrow.target[i]);
      Array exact(ElementType::Float64, wide.prediction.count(), NAN);
      field_loss_gradient(host, wide.comparison(), {nullptr, 2}, exact.data());
      Array rounded(type, exact.count());
      for (std::int64_t i = 0; i < exact.count(); ++i) rounded.set(i, exact[i]);
      EXPECT_TRUE(gradient.same_bits(rounded)) << "problem " << seed;
    }
  }
}

// A field that is cut gives the loss and the gradient of the whole one.
TEST(FieldLoss, NormsOfPartsAreGathered) {
  for (std::uint32_t seed = 0; seed < problems; ++seed) {
    Problem whole = problem_of(ElementType::Float64, seed);
    if (!whole.differences.empty()) continue;
    whole.runs = {{0, whole.points}};
    double loss = NAN;
    field_loss(host, whole.comparison(), &loss);
    Array gradient(ElementType::Float64, whole.prediction.count(), NAN);
    field_loss_gradient(host, whole.comparison(), {nullptr, 0.5}, gradient.data());
    const std::vector<PointRun> parts[] = {
        {{0, whole.in_row}, {2 * whole.in_row, whole.in_row}},
        {{whole.in_row, whole.in_row}, {3 * whole.in_row, whole.points - 3 * whole.in_row}}};
    const std::int64_t groups = groups_of(whole);
    std::vector<double> norms(static_cast<std::size_t>(2 * 3 * groups), NAN);
    for (std::int64_t member = 0; member < 2; ++member) {
      whole.runs = parts[member];
      field_norms(host, whole.comparison(), norms.data() + 3 * member * groups);
    }
    const GatheredNorms gathered{norms.data(), 2, groups, whole.relative};
    double together = NAN;
    gathered_field_loss(host, gathered, &together);
    EXPECT_NEAR(together, loss, 1e-13 * (1 + std::abs(loss))) << "problem " << seed;
    std::vector<double> of_norms(norms.size(), NAN);
    gathered_field_loss_gradient(host, gathered, {nullptr, 0.5}, of_norms.data());
    std::vector<double> sum(static_cast<std::size_t>(gradient.count()), 0.0);
    for (std::int64_t member = 0; member < 2; ++member) {
      const double* const own = of_norms.data() + 3 * member * groups;
      for (std::int64_t i = groups; i < 3 * groups; ++i) EXPECT_EQ(own[i], 0);
      whole.runs = parts[member];
      Array part(ElementType::Float64, gradient.count(), NAN);
      field_norms_gradient(host, whole.comparison(), own, part.data());
      for (std::int64_t i = 0; i < part.count(); ++i) {
        if (!Reference(whole, 0).counts(i / whole.channels % whole.points)) {
          EXPECT_EQ(part[i], 0);
        }
        sum[static_cast<std::size_t>(i)] += part[i];
      }
    }
    expect_near(gradient, sum, 1e-12, 1e-14, "gradient of problem " + std::to_string(seed));
  }
}

// By hand: members 1, 3 and 6 where 2 is wanted are off by 1, 1 and 4, and apart by 2, 3 and 5.
TEST(FieldLoss, TheScoreOfThreeMembers) {
  const double members[] = {6, 1, 3};
  const double wanted = 2;
  double slopes[] = {NAN, NAN, NAN};
  const std::vector<PointRun> runs = {{0, 1}};
  FieldComparison fields;
  fields.type = ElementType::Float64;
  fields.prediction = members;
  fields.target = &wanted;
  fields.batch = fields.points = fields.channels = 1;
  fields.members = 3;
  fields.runs = runs;
  double loss = NAN;
  field_loss(host, fields, &loss);
  EXPECT_DOUBLE_EQ(loss, 6.0 / 3 - 10.0 / 6);
  field_loss_gradient(host, fields, {nullptr, 1}, slopes);
  EXPECT_DOUBLE_EQ(slopes[0], 1.0 / 3 - 2.0 / 6);
  EXPECT_DOUBLE_EQ(slopes[1], -1.0 / 3 + 2.0 / 6);
  EXPECT_DOUBLE_EQ(slopes[2], 1.0 / 3);
}

// Members that are equal, or are what is wanted, have the middle of what slopes they might.
TEST(FieldLoss, TiesCountNothing) {
  const double wanted = 2;
  const std::vector<PointRun> runs = {{0, 1}};
  FieldComparison fields;
  fields.type = ElementType::Float64;
  fields.target = &wanted;
  fields.batch = fields.points = fields.channels = 1;
  fields.members = 3;
  fields.runs = runs;
  const auto slopes_of = [&](std::vector<double> members) {
    fields.prediction = members.data();
    std::vector<double> slopes(3, NAN);
    field_loss_gradient(host, fields, {nullptr, 1}, slopes.data());
    return slopes;
  };
  EXPECT_EQ(slopes_of({2, 2, 2}), std::vector<double>({0, 0, 0}));
  EXPECT_EQ(slopes_of({5, 5, 5}), std::vector<double>({1.0 / 3, 1.0 / 3, 1.0 / 3}));
  EXPECT_EQ(slopes_of({2, 3, 3}),
            std::vector<double>({2.0 / 6, 1.0 / 3 - 1.0 / 6, 1.0 / 3 - 1.0 / 6}));
}

TEST(FieldLoss, NothingLeftIsNoLoss) {
  for (const bool relative : {false, true}) {
    Problem p(ElementType::Float32, 5);
    p.masked = true;
    p.relative = relative;
    p.runs = {{0, p.points}};
    for (std::int64_t i = 0; i < p.mask.count(); ++i) p.mask.set(i, 0);
    double loss = NAN;
    field_loss(host, p.comparison(), &loss);
    EXPECT_EQ(loss, 0);
    Array gradient(ElementType::Float32, p.prediction.count(), NAN);
    field_loss_gradient(host, p.comparison(), {nullptr, 1}, gradient.data());
    for (std::int64_t i = 0; i < gradient.count(); ++i) EXPECT_EQ(gradient[i], 0);
  }
}

}  // namespace

}  // namespace garonne::kernels::test
