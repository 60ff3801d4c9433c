// Device kernels of updates, norms, scalars and random numbers against the CPU's.
#include "kernels/device/places.hpp"

#include "kernels/device/dropout.hpp"
#include "kernels/device/initialise.hpp"
#include "kernels/device/lamb_update.hpp"
#include "kernels/device/momentum_update.hpp"
#include "kernels/device/optimizer_update.hpp"
#include "kernels/device/reduction.hpp"
#include "kernels/device/scalar.hpp"
#include "kernels/dropout.hpp"
#include "kernels/initialise.hpp"
#include "kernels/lamb_update.hpp"
#include "kernels/momentum_update.hpp"
#include "kernels/optimizer_update.hpp"
#include "kernels/reduction.hpp"
#include "kernels/scalar.hpp"

#include <cmath>
#include <cstring>
#include <limits>

namespace garonne::kernels::test {

namespace {

struct Updated {
  Array parameter;
  Array first;
  Array second;
  Array copy;

  Updated(ElementType type, std::int64_t n)
      : parameter(random_array(type, n, 1)),
        first(random_array(type, n, 2)),
        second(type, n),
        copy(ElementType::BFloat16, n, 3.0) {
    const Array roots = random_array(type, n, 3);
    for (std::int64_t i = 0; i < n; ++i) second.set(i, roots[i] * roots[i]);
  }

  void expect_same(const Updated& other, const std::string& what) const {
    EXPECT_TRUE(parameter.same_bits(other.parameter)) << what;
    EXPECT_TRUE(first.same_bits(other.first)) << what;
    EXPECT_TRUE(second.same_bits(other.second)) << what;
    EXPECT_TRUE(copy.same_bits(other.copy)) << what;
  }
};

AdamW options_of(int which) {
  AdamW options;
  options.learning_rate = 3e-3;
  options.bias_correction1 = 1 - std::pow(0.9, 3);
  options.bias_correction2 = 1 - std::pow(0.95, 3);
  options.weight_decay = which == 0 ? 0.0 : 0.1;
  options.l2 = which == 1 ? 0.01 : 0.0;
  return options;
}

void expect_update(const device::Place& place, ElementType type, std::int64_t n,
                   const AdamW& options, double scale, bool with_copy) {
  const Array gradient = random_array(type, n, 4);
  Updated wanted(type, n);
  Updated got(type, n);
  adamw_update(host, type, wanted.parameter.data(), wanted.first.data(), wanted.second.data(),
               gradient.data(), n, options, {.value = scale},
               with_copy ? wanted.copy.data() : nullptr);
  {
    const std::vector<double> scales = {scale};
    OnPlace parameter(place, got.parameter);
    OnPlace first(place, got.first);
    OnPlace second(place, got.second);
    OnPlace copy(place, got.copy);
    device::adamw_update(place, type, parameter.data(), first.data(), second.data(),
                         OnPlace(place, gradient).data(), n, options,
                         {.place = OnPlace(place, scales).as<double>()},
                         with_copy ? copy.data() : nullptr);
  }
  got.expect_same(wanted, name_of(place) + ", " + std::to_string(n));
}

// The numbers of the step where the kernel reads them, and others by value.
void expect_update_by_place(const device::Place& place, ElementType type, std::int64_t n,
                            const AdamW& options, double scale) {
  const Array gradient = random_array(type, n, 4);
  Updated wanted(type, n);
  Updated got(type, n);
  Updated on_host(type, n);
  adamw_update(host, type, wanted.parameter.data(), wanted.first.data(), wanted.second.data(),
               gradient.data(), n, options, {.value = scale}, wanted.copy.data());
  const std::vector<AdamWRates> rates = {adamw_rates(options)};
  AdamW other = options;
  other.learning_rate = 7;
  other.bias_correction1 = other.bias_correction2 = 0.5;
  other.rates = rates.data();
  adamw_update(host, type, on_host.parameter.data(), on_host.first.data(), on_host.second.data(),
               gradient.data(), n, other, {.value = scale}, on_host.copy.data());
  on_host.expect_same(wanted, "host, " + std::to_string(n));
  {
    OnPlace there(place, rates);
    other.rates = there.as<AdamWRates>();
    OnPlace parameter(place, got.parameter);
    OnPlace first(place, got.first);
    OnPlace second(place, got.second);
    OnPlace copy(place, got.copy);
    device::adamw_update(place, type, parameter.data(), first.data(), second.data(),
                         OnPlace(place, gradient).data(), n, other, {.value = scale}, copy.data());
  }
  got.expect_same(wanted, name_of(place) + ", " + std::to_string(n));
}

TEST(DeviceAdamW, ReadsTheNumbersOfTheStepWhereTheyAre) {
  for (const device::Place& place : places()) {
    for (const ElementType type : wide_types) {
      for (const int which : {0, 1})
        expect_update_by_place(place, type, 999, options_of(which), 0.7);
    }
  }
}

TEST(DeviceAdamW, HasTheBitsOfCpus) {
  for (const device::Place& place : places()) {
    for (const ElementType type : wide_types) {
      for (const std::int64_t n : odd_sizes) {
        for (const int which : {0, 1, 2}) {
          expect_update(place, type, n, options_of(which), 0.37, which != 1);
          if (n % 2 != 0) continue;
          AdamW pairs = options_of(which);
          pairs.pairs = true;
          expect_update(place, type, n, pairs, 1.0, which != 1);
        }
      }
      AdamW pairs = options_of(1);
      pairs.pairs = true;
      for (const std::int64_t n : {2, 6, 14, 1002}) expect_update(place, type, n, pairs, 1.0, true);
    }
  }
}

TEST(DeviceAdamW, ChangesNothingWhereTheScaleIsNotFinite) {
  for (const device::Place& place : places()) {
    const std::int64_t n = 100;
    const Updated before(ElementType::Float32, n);
    for (const double scale :
         {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
      Updated got(ElementType::Float32, n);
      const Array gradient = random_array(ElementType::Float32, n, 4);
      {
        const std::vector<double> scales = {scale};
        OnPlace parameter(place, got.parameter);
        OnPlace first(place, got.first);
        OnPlace second(place, got.second);
        OnPlace copy(place, got.copy);
        device::adamw_update(place, ElementType::Float32, parameter.data(), first.data(),
                             second.data(), OnPlace(place, gradient).data(), n, options_of(0),
                             {.place = OnPlace(place, scales).as<double>()}, copy.data());
      }
      got.expect_same(before, name_of(place));
    }
  }
}

TEST(DeviceMomentum, HasTheBitsOfCpus) {
  for (const device::Place& place : places()) {
    for (const ElementType type : wide_types) {
      for (const std::int64_t n : odd_sizes) {
        for (const MomentumRule rule :
             {MomentumRule::Sgd, MomentumRule::Lion, MomentumRule::Lars}) {
          for (const double scale : {0.37, std::numeric_limits<double>::quiet_NaN()}) {
            Momentum options{rule, 0.9, 0.95, 0.1, n % 2 == 0 ? 0.01 : 0.0};
            const std::vector<double> squares = {3.7, 0.29};
            options.squares = squares.data();
            options.epsilon = 1e-3;
            const Array gradient = random_array(type, n, 4);
            Updated wanted(type, n);
            Updated got(type, n);
            momentum_update(host, type, wanted.parameter.data(), wanted.first.data(),
                            gradient.data(), n, options, {.value = 3e-3}, {.value = scale},
                            n % 3 == 0 ? nullptr : wanted.copy.data());
            {
              const std::vector<double> rates = {3e-3};
              const std::vector<double> scales = {scale};
              const OnPlace norms(place, squares);
              options.squares = norms.as<double>();
              OnPlace parameter(place, got.parameter);
              OnPlace first(place, got.first);
              OnPlace copy(place, got.copy);
              device::momentum_update(place, type, parameter.data(), first.data(),
                                      OnPlace(place, gradient).data(), n, options,
                                      {.place = OnPlace(place, rates).as<double>()},
                                      {.place = OnPlace(place, scales).as<double>()},
                                      n % 3 == 0 ? nullptr : copy.data());
            }
            got.expect_same(wanted, name_of(place) + ", " + std::to_string(n));
          }
        }
      }
    }
  }
}

// The rates by value and where the kernel reads them.
TEST(DeviceLamb, HasTheBitsOfCpus) {
  for (const device::Place& place : places()) {
    for (const ElementType type : wide_types) {
      for (const std::int64_t n : odd_sizes) {
        for (const double scale : {0.37, std::numeric_limits<double>::quiet_NaN()}) {
          Lamb options;
          options.rates = {.learning_rate = 3e-3, .correction = 3.7, .root = 2.9};
          options.weight_decay = n % 3 == 0 ? 0.0 : 0.1;
          options.l2 = n % 2 == 0 ? 0.01 : 0.0;
          const std::vector<double> squares = {3.7, 0.29};
          options.squares = squares.data();
          const Array gradient = random_array(type, n, 4);
          Updated wanted(type, n);
          Updated got(type, n);
          double sum = 1.0;
          add_lamb_squares(host, type, wanted.parameter.data(), wanted.first.data(),
                           wanted.second.data(), gradient.data(), n, options, {.value = scale},
                           &sum);
          lamb_update(host, type, wanted.parameter.data(), wanted.first.data(),
                      wanted.second.data(), gradient.data(), n, options, {.value = scale},
                      n % 3 == 0 ? nullptr : wanted.copy.data());
          std::vector<double> total = {1.0};
          {
            const std::vector<double> rates = {3e-3, 3.7, 2.9};
            const std::vector<double> scales = {scale};
            const OnPlace norms(place, squares);
            const OnPlace numbers(place, rates);
            const OnPlace factor(place, scales);
            const OnPlace slopes(place, gradient);
            options.squares = norms.as<double>();
            if (n % 2 == 0) {
              options.rates = {};
              options.rates_place = reinterpret_cast<const LambRates*>(numbers.as<double>());
            }
            OnPlace parameter(place, got.parameter);
            OnPlace first(place, got.first);
            OnPlace second(place, got.second);
            OnPlace copy(place, got.copy);
            OnPlace square(place, total);
            device::add_lamb_squares(place, type, parameter.data(), first.data(), second.data(),
                                     slopes.data(), n, options, {.place = factor.as<double>()},
                                     square.as<double>());
            device::lamb_update(place, type, parameter.data(), first.data(), second.data(),
                                slopes.data(), n, options, {.place = factor.as<double>()},
                                n % 3 == 0 ? nullptr : copy.data());
          }
          got.expect_same(wanted, name_of(place) + ", " + std::to_string(n));
          EXPECT_NEAR(total[0], sum, 1e-13 * sum);
        }
      }
    }
  }
}

// The order of device/reduction.hpp, slowly: packs of 16 bytes go to threads in turn.
double documented_squares(const Array& values) {
  const std::int64_t length = device::squares_block(values.count());
  const std::int64_t width = 16 / element_bytes(values.type());
  std::vector<double> blocks;
  for (std::int64_t begin = 0; begin < values.count(); begin += length) {
    std::vector<double> threads(256, 0.0);
    for (std::int64_t i = begin; i < std::min(begin + length, values.count()); ++i)
      threads[static_cast<std::size_t>((i - begin) / width % 256)] += values[i] * values[i];
    blocks.push_back(sum_of_threads(threads, 256));
  }
  return sum_of_threads(blocks, 256);
}

double squares_on(const device::Place& place, const Array& values, double before) {
  std::vector<double> total = {before};
  {
    OnPlace sum(place, total);
    device::add_sum_of_squares(place, values.type(), OnPlace(place, values).data(), values.count(),
                               sum.as<double>());
  }
  return total[0];
}

TEST(DeviceReduction, SquaresAreAddedInTheDocumentedOrder) {
  for (const device::Place& place : places()) {
    for (const ElementType type : wide_types) {
      for (const std::int64_t n : {1, 31, 32, 33, 999, 1000, 1001, 8192, 8193, 100003}) {
        const Array values = random_array(type, n, 5, n % 2 == 0 ? 1e4 : 1.0);
        EXPECT_EQ(squares_on(place, values, 0.0), documented_squares(values)) << n;
        double of_host = 2.0;
        add_sum_of_squares(host, type, values.data(), n, &of_host);
        EXPECT_NEAR(squares_on(place, values, 2.0), of_host, 1e-13 * of_host) << n;
      }
    }
    // Numbers whose order is seen.
    Array values(ElementType::Float64, 5000);
    const double cycle[] = {1e8, 1, 1e-4, 1};
    for (std::int64_t i = 0; i < 5000; ++i) values.set(i, cycle[i * 7 / 3 % 4]);
    EXPECT_EQ(squares_on(place, values, 0.0), documented_squares(values));
  }
  EXPECT_LE((std::int64_t{1} << 40) / device::squares_block(std::int64_t{1} << 40),
            device::scratch_doubles);
}

TEST(DeviceReduction, AddsAsOnCpus) {
  for (const device::Place& place : places()) {
    for (const ElementType type : all_types) {
      for (const std::int64_t n : odd_sizes) {
        const Array source = random_array(type, n, 6);
        Array wanted = random_array(type, n, 7);
        Array got = wanted;
        add_into(host, type, wanted.data(), source.data(), n);
        {
          OnPlace destination(place, got);
          device::add_into(place, type, destination.data(), OnPlace(place, source).data(), n);
        }
        ASSERT_TRUE(got.same_bits(wanted)) << name_of(place) << ", " << n;
      }
    }
  }
}

bool same_bits(double a, double b) {
  return std::memcmp(&a, &b, sizeof a) == 0 || (std::isnan(a) && std::isnan(b));
}

TEST(DeviceScalar, MeansAreThoseOfCpus) {
  for (const device::Place& place : places()) {
    for (const std::size_t count : {1U, 3U, 64U, 65U, 200U}) {
      std::vector<double> values;
      for (std::size_t i = 0; i < count; ++i)
        values.push_back(i % 4 == 0 ? 1e8 : i % 4 == 2 ? -1e8 : 1.0 / static_cast<double>(i + 1));
      std::vector<Scalar> numbers;
      for (std::size_t i = 0; i < count; ++i) {
        numbers.push_back(i % 2 == 0 ? Scalar{.place = &values[i]} : Scalar{.value = values[i]});
      }
      double wanted = 0;
      mean_of(host, numbers, &wanted);
      std::vector<double> got = {0};
      {
        OnPlace there(place, std::as_const(values));
        for (std::size_t i = 0; i < count; i += 2) numbers[i].place = there.as<double>() + i;
        OnPlace mean(place, got);
        device::mean_of(place, numbers, mean.as<double>());
      }
      EXPECT_TRUE(same_bits(got[0], wanted)) << count;
    }
  }
}

TEST(DeviceScalar, SumsGradientsAndClippingAreThoseOfCpus) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const device::Place& place : places()) {
    for (const double squares : {0.0, 4.0, 1e-9, infinity, -1.0}) {
      for (const double loss : {1.5, infinity}) {
        for (const double clip : {0.0, 1.0, 3.0}) {
          double wanted[4] = {0, 0, 7.0 / 3.0, 0};
          clip_scale(host, &loss, &squares, clip, &wanted[0], &wanted[1]);
          add_scaled(host, {.value = loss}, 1.0 / 3.0, &wanted[2]);
          mean_of_gradient(host, {.value = squares}, 3, &wanted[3]);
          std::vector<double> got = {0, 0, 7.0 / 3.0, 0};
          const std::vector<double> given = {loss, squares};
          {
            OnPlace in(place, given);
            OnPlace out(place, got);
            const auto* const from = in.as<double>();
            auto* const to = out.as<double>();
            device::clip_scale(place, from, from + 1, clip, to, to + 1);
            device::add_scaled(place, {.place = from}, 1.0 / 3.0, to + 2);
            device::mean_of_gradient(place, {.place = from + 1}, 3, to + 3);
          }
          for (std::size_t i = 0; i < 4; ++i) EXPECT_TRUE(same_bits(got[i], wanted[i])) << i;
        }
      }
    }
  }
}

TEST(DeviceInitialise, HasTheBitsOfCpus) {
  for (const device::Place& place : places()) {
    for (const ElementType type : all_types) {
      for (const std::int64_t n : odd_sizes) {
        for (const std::int64_t first : {0, 1, 2, 3, 1001}) {
          Array wanted(type, n);
          Array got(type, n);
          fill_normal(host, type, wanted.data(), n, {5, 6}, 0.02, first, 3, 4);
          {
            OnPlace values(place, got);
            device::fill_normal(place, type, values.data(), n, {5, 6}, 0.02, first, 3, 4);
          }
          ASSERT_TRUE(got.same_bits(wanted)) << name_of(place) << ", " << first << " + " << n;
          // Step and sample where the kernel reads them, and others by value.
          const std::vector<std::uint64_t> step = {3};
          const std::vector<std::int64_t> sample = {4};
          Array by_place(type, n);
          Array on_host(type, n);
          fill_normal(host, type, on_host.data(), n, {5, 6}, 0.02, first, 8, 9, step.data(),
                      sample.data());
          ASSERT_TRUE(on_host.same_bits(wanted)) << first << " + " << n;
          {
            OnPlace values(place, by_place);
            device::fill_normal(place, type, values.data(), n, {5, 6}, 0.02, first, 8, 9,
                                OnPlace(place, step).as<std::uint64_t>(),
                                OnPlace(place, sample).as<std::int64_t>());
          }
          ASSERT_TRUE(by_place.same_bits(wanted)) << name_of(place) << ", " << first << " + " << n;
        }
      }
    }
  }
}

void expect_dropout(const device::Place& place, ElementType type, const Dropout& dropout,
                    std::int64_t elements, std::int64_t elements_per_sample, bool with_residual) {
  std::vector<std::int64_t> samples = {7, 3, 1LL << 33, 12, 5};
  while (static_cast<std::int64_t>(samples.size()) * elements_per_sample <
         dropout.first_element + elements)
    samples.push_back(2 * samples.back() + 1 - (samples.size() > 30 ? samples.back() : 0));
  const Array x = random_array(type, elements, 8);
  const Array residual = random_array(type, elements, 9);
  Array wanted(type, elements);
  Array got(type, elements);
  dropout_add(host, type, with_residual ? residual.data() : nullptr, x.data(), wanted.data(),
              dropout, samples.data(), elements, elements_per_sample);
  {
    OnPlace out(place, got);
    OnPlace base(place, residual);
    device::dropout_add(place, type, with_residual ? base.data() : nullptr,
                        OnPlace(place, x).data(), out.data(), dropout,
                        OnPlace(place, samples).as<std::int64_t>(), elements, elements_per_sample);
  }
  ASSERT_TRUE(got.same_bits(wanted))
      << name_of(place) << ", type " << static_cast<int>(type) << ", " << elements
      << " of samples of " << elements_per_sample << " from " << dropout.first_element;
  // The step where the kernel reads it, and another one by value.
  const std::vector<std::uint64_t> step = {dropout.step};
  Dropout other = dropout;
  other.step += 1;
  other.step_place = step.data();
  Array on_host(type, elements);
  dropout_add(host, type, with_residual ? residual.data() : nullptr, x.data(), on_host.data(),
              other, samples.data(), elements, elements_per_sample);
  ASSERT_TRUE(on_host.same_bits(wanted));
  Array by_place(type, elements);
  {
    OnPlace there(place, step);
    other.step_place = there.as<std::uint64_t>();
    OnPlace out(place, by_place);
    OnPlace base(place, residual);
    device::dropout_add(place, type, with_residual ? base.data() : nullptr,
                        OnPlace(place, x).data(), out.data(), other,
                        OnPlace(place, samples).as<std::int64_t>(), elements, elements_per_sample);
  }
  ASSERT_TRUE(by_place.same_bits(wanted)) << name_of(place);
}

TEST(DeviceDropout, MasksAndSumsHaveTheBitsOfCpus) {
  for (const device::Place& place : places()) {
    for (const ElementType type : all_types) {
      for (const double probability : {0.0, 0.1}) {
        Dropout dropout{{1, 2}, dropout_threshold(probability), 1 / (1 - probability), 9, 0};
        for (const std::int64_t of_sample : odd_sizes) {
          for (const bool residual : {false, true}) {
            expect_dropout(place, type, dropout, 3 * of_sample, of_sample, residual);
            Dropout piece = dropout;
            piece.first_element = of_sample / 2 + 1;
            expect_dropout(place, type, piece, 2 * of_sample + 1, of_sample, residual);
          }
        }
        // Of whole packs: more than a team has, more samples than it keeps, and a piece.
        for (const bool residual : {false, true}) {
          expect_dropout(place, type, dropout, 3 * 8200, 8200, residual);
          expect_dropout(place, type, dropout, 200 * 8, 8, residual);
          Dropout piece = dropout;
          piece.first_element = 504;
          expect_dropout(place, type, piece, 2 * 1000 + 96, 1000, residual);
        }
      }
    }
  }
}

}  // namespace

}  // namespace garonne::kernels::test
