// Device kernels of Adafactor against the CPU's.
#include "kernels/device/adafactor_update.hpp"

#include "kernels/adafactor_parts.hpp"
#include "kernels/adafactor_update.hpp"
#include "kernels/device/places.hpp"

#include <cmath>
#include <limits>
#include <vector>

namespace garonne::kernels::test {
namespace {

struct Trained {
  Array parameter;
  Array rows;
  Array columns;
  Array copy;

  Trained(ElementType type, const MatrixPart& part, std::int64_t n)
      : parameter(random_array(type, n, 1)),
        rows(random_array(type, part.rows, 2)),
        columns(random_array(type, part.columns, 3)),
        copy(ElementType::BFloat16, n, 3.0) {
    for (Array* const moments : {&rows, &columns}) {
      for (std::int64_t i = 0; i < moments->count(); ++i)
        moments->set(i, (*moments)[i] * (*moments)[i] + 0.01);
    }
  }

  void expect_same(const Trained& other, const std::string& what) const {
    EXPECT_TRUE(parameter.same_bits(other.parameter)) << what;
    EXPECT_TRUE(rows.same_bits(other.rows)) << what;
    EXPECT_TRUE(columns.same_bits(other.columns)) << what;
    EXPECT_TRUE(copy.same_bits(other.copy)) << what;
  }
};

void expect_bits_of_cpus(const device::Place& place, ElementType type, const NamedPart& named,
                         int which, double scale) {
  const MatrixPart& part = named.part;
  const std::int64_t n = part.elements + named.padding;
  const std::vector<double> rates = {3e-3, 0.6, 0.4};
  Adafactor options;
  options.rates = {rates[0], rates[1], rates[2]};
  options.weight_decay = which == 0 ? 0.1 : 0.0;
  options.l2 = which == 1 ? 0.01 : 0.0;
  options.update_limit = 0.5;
  const Array gradient = random_array(type, n, 4);
  Trained wanted(type, part, n);
  Trained got(type, part, n);

  std::vector<double> sums(static_cast<std::size_t>(3 + part.rows + part.columns));
  std::vector<double> own_sums = sums;
  add_adafactor_sums(host, type, wanted.parameter.data(), wanted.rows.data(), gradient.data(), part,
                     options, {.value = scale}, sums.data());
  // As if others had added theirs; the device's updates go by these, too.
  std::vector<double> all = sums;
  for (double& sum : all) sum += 0.7;
  options.sums = all.data();
  std::vector<double> square = {1.0};
  std::vector<double> own_square = square;
  add_adafactor_squares(host, type, wanted.parameter.data(), wanted.rows.data(),
                        wanted.columns.data(), gradient.data(), part, options, {.value = scale},
                        square.data());
  const std::vector<double> squares = {static_cast<double>(part.rows * part.columns)};
  options.squares = squares.data();
  adafactor_update(host, type, wanted.parameter.data(), wanted.rows.data(), wanted.columns.data(),
                   gradient.data(), n, part, options, {.value = scale},
                   which == 2 ? nullptr : wanted.copy.data());
  {
    const std::vector<double> scales = {scale};
    const OnPlace factor(place, scales);
    const OnPlace numbers(place, rates);
    const OnPlace given(place, all);
    const OnPlace lengths(place, squares);
    const OnPlace slopes(place, gradient);
    OnPlace parameter(place, got.parameter);
    OnPlace rows(place, got.rows);
    OnPlace columns(place, got.columns);
    OnPlace copy(place, got.copy);
    OnPlace summed(place, own_sums);
    OnPlace squared(place, own_square);
    const Scalar by_place{.place = factor.as<double>()};
    device::add_adafactor_sums(place, type, parameter.data(), rows.data(), slopes.data(), part,
                               options, by_place, summed.as<double>());
    options.sums = given.as<double>();
    options.squares = lengths.as<double>();
    if (which == 1) {
      options.rates = {};
      options.rates_place = reinterpret_cast<const AdafactorRates*>(numbers.as<double>());
    }
    device::add_adafactor_squares(place, type, parameter.data(), rows.data(), columns.data(),
                                  slopes.data(), part, options, by_place, squared.as<double>());
    device::adafactor_update(place, type, parameter.data(), rows.data(), columns.data(),
                             slopes.data(), n, part, options, by_place,
                             which == 2 ? nullptr : copy.data());
  }
  const std::string what = name_of(place) + ", " + named.name;
  got.expect_same(wanted, what);
  EXPECT_NEAR(own_square[0], square[0], 1e-13 * square[0]) << what;
  // Those of the parameter are no matter of the scale.
  for (std::size_t k = std::isfinite(scale) ? 0 : 1; k < sums.size(); ++k)
    EXPECT_NEAR(own_sums[k], sums[k], 1e-13 * sums[k]) << what << ", " << k;
}

TEST(DeviceAdafactor, HasTheBitsOfCpus) {
  for (const device::Place& place : places()) {
    for (const ElementType type : wide_types) {
      for (const NamedPart& named : parts_of_matrices()) {
        for (const int which : {0, 1, 2}) expect_bits_of_cpus(place, type, named, which, 0.37);
        expect_bits_of_cpus(place, type, named, 0, std::numeric_limits<double>::quiet_NaN());
      }
    }
  }
}

// The planner counts on these (plan/step/launches.hpp).
TEST(DeviceAdafactor, PutsAsManyKernelsAsThePlannerCountsOn) {
  const NamedPart named = parts_of_matrices().front();
  const MatrixPart& part = named.part;
  const std::int64_t n = part.elements + named.padding;
  Trained trained(ElementType::Float32, part, n);
  const Array slopes = random_array(ElementType::Float32, n, 4);
  std::vector<double> sums(static_cast<std::size_t>(3 + part.rows + part.columns), 1.0);
  std::vector<double> squares = {1.0};
  for (const device::Place& place : places()) {
    const OnPlace gradient(place, slopes);
    OnPlace parameter(place, trained.parameter);
    OnPlace rows(place, trained.rows);
    OnPlace columns(place, trained.columns);
    OnPlace summed(place, sums);
    OnPlace squared(place, squares);
    const Scalar scale{.value = 1.0};
    Adafactor options;
    EXPECT_EQ(launches_of([&] {
                device::add_adafactor_sums(place, ElementType::Float32, parameter.data(),
                                           rows.data(), gradient.data(), part, options, scale,
                                           summed.as<double>());
              }),
              5)
        << name_of(place);
    options.sums = summed.as<double>();
    EXPECT_EQ(launches_of([&] {
                device::add_adafactor_squares(place, ElementType::Float32, parameter.data(),
                                              rows.data(), columns.data(), gradient.data(), part,
                                              options, scale, squared.as<double>());
              }),
              2)
        << name_of(place);
    options.squares = squared.as<double>();
    EXPECT_EQ(launches_of([&] {
                device::adafactor_update(place, ElementType::Float32, parameter.data(), rows.data(),
                                         columns.data(), gradient.data(), n, part, options, scale,
                                         nullptr);
              }),
              2)
        << name_of(place);
  }
}

}  // namespace
}  // namespace garonne::kernels::test
