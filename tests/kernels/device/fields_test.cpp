// Device kernels of fields against the CPU's: instance norm and its parts, losses, dealt rows.
#include "kernels/device/places.hpp"

#include "base/error.hpp"
#include "kernels/device/field_loss.hpp"
#include "kernels/device/instance_moments.hpp"
#include "kernels/device/instance_norm.hpp"
#include "kernels/device/row_deal.hpp"
#include "kernels/field_loss.hpp"
#include "kernels/instance_moments.hpp"
#include "kernels/instance_norm.hpp"
#include "kernels/row_deal.hpp"

#include <cmath>

namespace garonne::kernels::test {

namespace {

// Sums are of float64 on both sides; what is rounded from them may fall to the other side.
void expect_close(const Array& got, const Array& wanted, double slack, const std::string& what) {
  const double rounded = slack * rounding(accumulation_type(wanted.type())) +
                         (wanted.type() == ElementType::BFloat16 ? 2 * rounding(wanted.type()) : 0);
  expect_near(got, values_of(wanted), rounded, rounded, what);
}

void expect_close(const std::vector<double>& got, const std::vector<double>& wanted,
                  const std::string& what) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], wanted[i], 1e-11 * (1 + std::abs(wanted[i]))) << what << ", " << i;
}

struct Extents {
  std::int64_t batch;
  std::int64_t points;
  std::int64_t channels;

  std::int64_t elements() const { return batch * points * channels; }
};
const Extents extents[] = {{1, 1, 1},   {2, 33, 31},  {1, 999, 33}, {3, 200, 32},
                           {2, 64, 65}, {1, 5000, 3}, {2, 100, 129}};
constexpr double field_epsilon = 1e-5;

Array field_of(ElementType type, const Extents& e, std::uint32_t seed) {
  Array x = random_array(type, e.elements(), seed);
  for (std::int64_t i = 0; i < x.count(); ++i)
    x.set(i, x[i] + 4 * static_cast<double>(i % e.channels % 5));
  return x;
}

std::vector<double> workspace_of(const Extents& e) {
  return std::vector<double>(
      static_cast<std::size_t>(instance_norm_workspace_bytes(e.batch, e.points, e.channels) / 8));
}

void expect_instance_norm(const device::Place& place, ElementType type, const Extents& e,
                          bool accumulate) {
  const ElementType sums = accumulation_type(type);
  const Array x = field_of(type, e, 1);
  const Array gain = random_array(type, e.channels, 2);
  const Array bias = random_array(type, e.channels, 3);
  const Array given = random_array(type, e.elements(), 4);
  Array y[2] = {Array(type, e.elements()), Array(type, e.elements())};
  Array mean[2] = {Array(sums, e.batch * e.channels), Array(sums, e.batch * e.channels)};
  Array inverse[2] = {mean[0], mean[0]};
  Array slope[2] = {given, given};  // in place
  Array of_gain[2] = {random_array(sums, e.channels, 5), random_array(sums, e.channels, 5)};
  Array of_bias[2] = {random_array(sums, e.channels, 6), random_array(sums, e.channels, 6)};
  std::vector<double> workspace = workspace_of(e);
  instance_norm_forward(host, type, x.data(), gain.data(), bias.data(), field_epsilon, y[0].data(),
                        mean[0].data(), inverse[0].data(), workspace.data(), e.batch, e.points,
                        e.channels);
  instance_norm_backward(host, type, slope[0].data(), x.data(), gain.data(), mean[0].data(),
                         inverse[0].data(), slope[0].data(), of_gain[0].data(), of_bias[0].data(),
                         accumulate, workspace.data(), e.batch, e.points, e.channels);
  {
    OnPlace from(place, x);
    OnPlace gains(place, gain);
    OnPlace out(place, y[1]);
    OnPlace means(place, mean[1]);
    OnPlace inverses(place, inverse[1]);
    OnPlace gradient(place, slope[1]);
    OnPlace gain_gradient(place, of_gain[1]);
    OnPlace bias_gradient(place, of_bias[1]);
    OnPlace space(place, workspace);
    device::instance_norm_forward(
        place, type, from.data(), gains.data(), OnPlace(place, bias).data(), field_epsilon,
        out.data(), means.data(), inverses.data(), space.data(), e.batch, e.points, e.channels);
    device::instance_norm_backward(place, type, gradient.data(), from.data(), gains.data(),
                                   means.data(), inverses.data(), gradient.data(),
                                   gain_gradient.data(), bias_gradient.data(), accumulate,
                                   space.data(), e.batch, e.points, e.channels);
  }
  const std::string what = name_of(place) + ", type " + std::to_string(static_cast<int>(type)) +
                           ", " + std::to_string(e.points) + " x " + std::to_string(e.channels);
  // A single point has a deviation of √epsilon, which makes roundings 300 times as large.
  const double slack = e.points == 1 ? 4000 : 64;
  // Sums are of float64, so only its own roundings can be more than one.
  const double of_sums = type == ElementType::Float64 ? slack : 2;
  expect_close(mean[1], mean[0], of_sums, "mean " + what);
  expect_close(inverse[1], inverse[0], of_sums, "inverse " + what);
  expect_close(y[1], y[0], slack, "y " + what);
  expect_close(slope[1], slope[0], slack, "x " + what);
  const double terms = static_cast<double>(e.batch * e.points);
  expect_close(of_gain[1], of_gain[0], slack * std::sqrt(terms), "gain " + what);
  expect_close(of_bias[1], of_bias[0], slack * std::sqrt(terms), "bias " + what);
}

TEST(DeviceInstanceNorm, IsTheCpusButForTheOrderOfSums) {
  for (const device::Place& place : places()) {
    for (const ElementType type : types_at(place)) {
      for (const Extents& e : extents)
        expect_instance_norm(place, type, e, /*accumulate=*/e.channels % 2 == 1);
    }
  }
}

std::vector<PointRun> runs_of(std::int64_t points) {
  if (points < 8) return {{0, points}};
  return {{1, 2}, {points / 2, points / 4}, {points - 1, 1}};
}

void expect_parts(const device::Place& place, ElementType type, const Extents& e) {
  const ElementType sums = accumulation_type(type);
  const std::int64_t states = e.batch * e.channels;
  const auto size = static_cast<std::size_t>(2 * states);
  const Array x = field_of(type, e, 1);
  const Array given = random_array(type, e.elements(), 4);
  const Array gain = random_array(type, e.channels, 2);
  const Array mean = random_array(sums, states, 7);
  const Array inverse = random_array(sums, states, 8);
  const std::vector<double> by_moments =
      values_of(random_array(ElementType::Float64, 2 * states, 9));
  const std::vector<PointRun> runs = runs_of(e.points);
  std::vector<double> workspace = workspace_of(e);
  std::vector<double> moments[2] = {std::vector<double>(size), std::vector<double>(size)};
  std::vector<double> products[2] = {moments[0], moments[0]};
  Array held[2] = {Array(type, e.elements()), Array(type, e.elements())};
  Array slope[2] = {held[0], held[0]};
  Array parameters[2] = {random_array(sums, 2 * e.channels, 5),
                         random_array(sums, 2 * e.channels, 5)};
  const std::int64_t half = e.channels * element_bytes(sums);
  Array workspaces[4] = {mean, mean, Array(type, states), Array(type, e.channels)};
  const Array bias = random_array(type, e.channels, 3);
  Array y[2] = {Array(type, e.elements()), Array(type, e.elements())};
  instance_norm_apply(host, type, x.data(), gain.data(), bias.data(), mean.data(), inverse.data(),
                      y[0].data(), e.batch, e.points, e.channels);
  instance_norm_moments(host, type, x.data(), runs, moments[0].data(), workspace.data(), e.batch,
                        e.points, e.channels);
  instance_norm_apply_backward(host, type, given.data(), x.data(), gain.data(), mean.data(),
                               inverse.data(), held[0].data(), products[0].data(), workspace.data(),
                               e.batch, e.points, e.channels);
  instance_moments_gradient(
      host, type, x.data(), runs, moments[0].data(), by_moments.data(), slope[0].data(),
      {workspaces[0].data(), workspaces[1].data(), workspaces[2].data(), workspaces[3].data()},
      e.batch, e.points, e.channels);
  instance_parameter_gradients(host, type, products[0].data(), parameters[0].data(), true,
                               static_cast<char*>(parameters[0].data()) + half, false, e.batch,
                               e.channels);
  {
    OnPlace from(place, x);
    OnPlace means(place, mean);
    OnPlace space(place, workspace);
    OnPlace out(place, moments[1]);
    OnPlace y_out(place, y[1]);
    OnPlace held_out(place, held[1]);
    OnPlace sums_out(place, products[1]);
    OnPlace slope_out(place, slope[1]);
    OnPlace both(place, parameters[1]);
    device::instance_norm_apply(
        place, type, from.data(), OnPlace(place, gain).data(), OnPlace(place, bias).data(),
        means.data(), OnPlace(place, inverse).data(), y_out.data(), e.batch, e.points, e.channels);
    device::instance_norm_moments(place, type, from.data(), runs, out.as<double>(), space.data(),
                                  e.batch, e.points, e.channels);
    device::instance_norm_apply_backward(
        place, type, OnPlace(place, given).data(), from.data(), OnPlace(place, gain).data(),
        means.data(), OnPlace(place, inverse).data(), held_out.data(), sums_out.as<double>(),
        space.data(), e.batch, e.points, e.channels);
    device::instance_moments_gradient(
        place, type, from.data(), runs, OnPlace(place, std::as_const(moments[0])).as<double>(),
        OnPlace(place, by_moments).as<double>(), slope_out.data(), e.batch, e.points, e.channels);
    device::instance_parameter_gradients(
        place, type, OnPlace(place, std::as_const(products[0])).as<double>(), both.data(), true,
        both.as<char>() + half, false, e.batch, e.channels);
  }
  const std::string what = name_of(place) + ", type " + std::to_string(static_cast<int>(type)) +
                           ", " + std::to_string(e.points) + " x " + std::to_string(e.channels);
  expect_close(moments[1], moments[0], "moments " + what);
  const double of_product = type == ElementType::Float64 ? 1e-11 : 1e-4;
  for (std::size_t i = 0; i < products[0].size(); ++i)
    ASSERT_NEAR(products[1][i], products[0][i], of_product * static_cast<double>(e.points)) << what;
  expect_close(held[1], held[0], 16, "held " + what);
  expect_close(slope[1], slope[0], 16, "slope " + what);
  EXPECT_TRUE(parameters[1].same_bits(parameters[0])) << what;
  expect_close(y[1], y[0], 16, "applied " + what);
}

TEST(DeviceInstanceNorm, PartsAreTheCpusButForTheOrderOfSums) {
  for (const device::Place& place : places()) {
    for (const ElementType type : types_at(place)) {
      for (const Extents& e : extents) expect_parts(place, type, e);
    }
    std::vector<double> nothing = {7, 7};
    std::vector<double> workspace(20);
    {
      OnPlace moments(place, nothing);
      device::instance_norm_moments(place, ElementType::Float32, nullptr, {}, moments.as<double>(),
                                    OnPlace(place, workspace).data(), 1, 5, 1);
    }
    EXPECT_EQ(nothing, std::vector<double>({0, 0}));
  }
}

TEST(DeviceInstanceNorm, GatheredStatisticsHaveTheBitsOfCpus) {
  const std::vector<std::int64_t> counted = {100, 1, 0, 57};
  const std::int64_t batch = 2;
  const std::int64_t channels = 33;
  const std::int64_t states = batch * channels;
  std::vector<double> moments = values_of(random_array(ElementType::Float64, 8 * states, 1));
  for (double& value : moments) value = std::abs(value);
  const std::vector<double> sums = values_of(random_array(ElementType::Float64, 2 * states, 2));
  const std::vector<double> gain = values_of(random_array(ElementType::Float64, channels, 3));
  for (const device::Place& place : places()) {
    for (const ElementType type : all_types) {
      GatheredMoments gathered{moments.data(), counted, batch, channels, field_epsilon};
      const ElementType states_type = accumulation_type(type);
      Array mean[2] = {Array(states_type, states), Array(states_type, states)};
      Array inverse[2] = {mean[0], mean[0]};
      std::vector<double> gradient[2] = {moments, moments};
      gathered_statistics(host, type, gathered, mean[0].data(), inverse[0].data());
      gathered_statistics_gradient(host, gathered, sums.data(), gain.data(), gradient[0].data());
      {
        OnPlace given(place, std::as_const(moments));
        OnPlace means(place, mean[1]);
        OnPlace inverses(place, inverse[1]);
        OnPlace slopes(place, gradient[1]);
        gathered.moments = given.as<double>();
        device::gathered_statistics(place, type, gathered, means.data(), inverses.data());
        device::gathered_statistics_gradient(place, gathered, OnPlace(place, sums).as<double>(),
                                             OnPlace(place, gain).as<double>(),
                                             slopes.as<double>());
      }
      EXPECT_TRUE(mean[1].same_bits(mean[0]) && inverse[1].same_bits(inverse[0]));
      EXPECT_EQ(gradient[1], gradient[0]);
    }
  }
}

// A comparison in one of its forms, with all that it points to in the memory of a place.
struct Problem {
  Problem(ElementType type, int form, std::int64_t rows_, std::int64_t in_row_)
      : rows(rows_),
        in_row(in_row_),
        members(form < 16 ? 1 : form - 14),
        prediction(random_array(type, batch * members * rows * in_row * channels, 1)),
        target(random_array(type, 2 * batch * rows * in_row * channels, 2)),
        mask(type, target.count(), 1.0),
        deviation(values_of(random_array(ElementType::Float64, channels * rows * in_row, 3))),
        mean(values_of(random_array(ElementType::Float64, channels * rows * in_row, 4))),
        weights(values_of(random_array(ElementType::Float64, rows, 5))),
        scratch(static_cast<std::size_t>(3 * rows * in_row)) {
    for (std::int64_t i = 0; i < mask.count(); i += 5) mask.set(i, 0);
    for (double& weight : weights) weight = std::abs(weight);
    const std::int64_t points = rows * in_row;
    fields.type = type;
    fields.target_step = form % 2;
    fields.mask_step = form % 2;
    fields.batch = batch;
    fields.members = members;
    fields.points = points;
    fields.channels = channels;
    fields.decodes_by_point = form % 3 == 2;
    fields.points_in_row = in_row;
    fields.pairs_in_group = form % 2 == 0 ? 1 : channels;
    fields.relative = form / 2 % 2 == 0;
    masked = form % 4 == 3;
    decoded = form % 3 != 0;
    if (form >= 16) {
      fields.pairs_in_group = 1;
      fields.relative = false;
      weighted = true;
      runs = runs_of(points);
    } else if (form >= 8) {
      axes = {{1, rows, in_row, false}, {rows, in_row, 1, true}};
      if (form >= 12) axes[1].periodic = false;
      runs = {{0, points}};
    } else {
      weighted = form % 2 == 1;
      runs = runs_of(points);
    }
    fields.differences = axes;
    fields.runs = runs;
  }

  static constexpr std::int64_t batch = 2;
  static constexpr std::int64_t channels = 3;
  std::int64_t rows;
  std::int64_t in_row;
  std::int64_t members;
  Array prediction;
  Array target;
  Array mask;
  std::vector<double> deviation;
  std::vector<double> mean;
  std::vector<double> weights;
  std::vector<double> scratch;
  std::vector<PointRun> runs;
  std::vector<AxisDifference> axes;
  bool masked = false;
  bool decoded = false;
  bool weighted = false;
  FieldComparison fields;

  struct Results {
    Array by_loss;
    Array by_norms;
    std::vector<double> norms;
    std::vector<double> loss;
  };
  Results results() const {
    return {Array(prediction.type(), prediction.count(), 7.0),
            Array(prediction.type(), prediction.count(), 7.0),
            std::vector<double>(static_cast<std::size_t>(3 * fields.groups())),
            {0}};
  }
  FieldComparison with(const void* predicted, const void* wanted, const void* there,
                       const double* by, const double* shift, const double* weight,
                       double* space) const {
    FieldComparison comparison = fields;
    comparison.prediction = predicted;
    comparison.target = wanted;
    comparison.mask = masked ? there : nullptr;
    comparison.deviation = decoded ? by : nullptr;
    comparison.mean = decoded ? shift : nullptr;
    comparison.row_weights = weighted ? weight : nullptr;
    comparison.scratch = space;
    return comparison;
  }
};

void expect_losses(const device::Place& place, Problem& p, const std::string& what) {
  const std::vector<double> by_error =
      values_of(random_array(ElementType::Float64, p.fields.groups(), 6));
  Problem::Results wanted = p.results();
  Problem::Results got = p.results();
  const FieldComparison on_host =
      p.with(p.prediction.data(), p.target.data(), p.mask.data(), p.deviation.data(), p.mean.data(),
             p.weights.data(), p.scratch.data());
  field_norms(host, on_host, wanted.norms.data());
  field_norms_gradient(host, on_host, by_error.data(), wanted.by_norms.data());
  field_loss(host, on_host, wanted.loss.data());
  field_loss_gradient(host, on_host, {.value = 0.5}, wanted.by_loss.data());
  {
    OnPlace prediction(place, std::as_const(p.prediction));
    OnPlace target(place, std::as_const(p.target));
    OnPlace mask(place, std::as_const(p.mask));
    OnPlace deviation(place, std::as_const(p.deviation));
    OnPlace mean(place, std::as_const(p.mean));
    OnPlace weights(place, std::as_const(p.weights));
    OnPlace norms(place, got.norms);
    OnPlace loss(place, got.loss);
    OnPlace by_norms(place, got.by_norms);
    OnPlace by_loss(place, got.by_loss);
    const FieldComparison there =
        p.with(prediction.data(), target.data(), mask.data(), deviation.as<double>(),
               mean.as<double>(), weights.as<double>(), nullptr);
    device::field_norms(place, there, norms.as<double>());
    device::field_norms_gradient(place, there, OnPlace(place, by_error).as<double>(),
                                 by_norms.data());
    device::field_loss(place, there, loss.as<double>());
    device::field_loss_gradient(place, there, {.value = 0.5}, by_loss.data());
  }
  expect_close(got.norms, wanted.norms, "norms " + what);
  expect_close(got.loss, wanted.loss, "loss " + what);
  expect_close(got.by_norms, wanted.by_norms, 16, "gradient of norms " + what);
  expect_close(got.by_loss, wanted.by_loss, 16, "gradient of the loss " + what);
}

TEST(DeviceFieldLoss, IsTheCpusButForTheOrderOfSums) {
  for (const device::Place& place : places()) {
    for (const ElementType type : types_at(place)) {
      for (int form = 0; form < 20; ++form) {
        Problem small(type, form, 4 + form % 3, 5);
        expect_losses(place, small, name_of(place) + ", form " + std::to_string(form));
      }
    }
    // Several slices of points.
    for (const int form : {1, 3, 9, 17}) {
      Problem large(ElementType::Float32, form, 97, 101);
      expect_losses(place, large, name_of(place) + ", large, form " + std::to_string(form));
    }
  }
}

TEST(DeviceFieldLoss, RefusesMoreRunsThanALaunchTakes) {
  Problem p(ElementType::Float32, 0, 40, 10);
  p.runs.clear();
  for (std::int64_t i = 0; i < 193; ++i) p.runs.push_back({2 * i, 1});
  p.fields.runs = p.runs;
  EXPECT_THROW(device::field_norms(places()[0], p.fields, nullptr), InternalError);
}

TEST(DeviceFieldLoss, GatheredNormsAreTheCpusButForTheOrderOfSums) {
  for (const device::Place& place : places()) {
    for (const bool relative : {false, true}) {
      for (const std::int64_t groups : odd_sizes) {
        const std::int64_t members = 3;
        std::vector<double> norms =
            values_of(random_array(ElementType::Float64, members * 3 * groups, 1));
        for (double& value : norms) value = std::abs(value);
        GatheredNorms gathered{norms.data(), members, groups, relative};
        std::vector<double> loss[2] = {{0}, {0}};
        std::vector<double> gradient[2] = {norms, norms};
        gathered_field_loss(host, gathered, loss[0].data());
        gathered_field_loss_gradient(host, gathered, {.value = 0.5}, gradient[0].data());
        {
          OnPlace in(place, std::as_const(norms));
          OnPlace sum(place, loss[1]);
          OnPlace out(place, gradient[1]);
          gathered.norms = in.as<double>();
          device::gathered_field_loss(place, gathered, sum.as<double>());
          device::gathered_field_loss_gradient(place, gathered, {.value = 0.5}, out.as<double>());
        }
        expect_close(loss[1], loss[0], name_of(place));
        EXPECT_EQ(gradient[1], gradient[0]) << groups;
      }
    }
  }
}

TEST(DeviceRowDeal, MovesRowsAsOnCpus) {
  for (const device::Place& place : places()) {
    for (const std::int64_t count : {5, 300}) {
      for (const std::int64_t width : {1, 33, 1001}) {
        const std::int64_t lines = count == 5 ? 3 : 1;
        std::vector<std::int64_t> slots;
        for (std::int64_t s = 0; s < count; ++s) slots.push_back(s % 4 == 3 ? -1 : count - 1 - s);
        const std::vector<double> given =
            values_of(random_array(ElementType::Float64, lines * count * width, 1));
        std::vector<double> whole[2] = {std::vector<double>(given.size(), 1.0),
                                        std::vector<double>(given.size(), 1.0)};
        std::vector<double> dealt[2] = {whole[0], whole[0]};
        gather_rows(host, given.data(), slots, whole[0].data(), lines, count, width);
        deal_rows(host, given.data(), slots, dealt[0].data(), lines, count, width);
        {
          OnPlace in(place, given);
          OnPlace rows(place, whole[1]);
          OnPlace in_slots(place, dealt[1]);
          device::gather_rows(place, in.as<double>(), slots, rows.as<double>(), lines, count,
                              width);
          device::deal_rows(place, in.as<double>(), slots, in_slots.as<double>(), lines, count,
                            width);
        }
        EXPECT_EQ(whole[1], whole[0]);
        EXPECT_EQ(dealt[1], dealt[0]);
      }
    }
  }
}

}  // namespace

}  // namespace garonne::kernels::test
