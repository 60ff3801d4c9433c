// Spherical harmonic transforms on devices against the CPU's.
#include "kernels/device/places.hpp"

#include "kernels/device/sphere_products.hpp"
#include "kernels/device/sphere_transform.hpp"
#include "kernels/sphere_products.hpp"
#include "kernels/sphere_transform.hpp"

#include <cmath>
#include <numbers>

namespace garonne::kernels::test {

namespace {

struct Sphere {
  SphereShape shape;
  std::int64_t batch;
  std::int64_t channels;
};
const Sphere spheres[] = {
    {{4, 8, 3, 2}, 1, 1},     {{5, 9, 5, 5}, 2, 3},      {{13, 24, 12, 12}, 1, 33},
    {{32, 31, 33, 16}, 1, 5}, {{37, 66, 37, 34}, 2, 17},
};

double largest(const Array& array) {
  double most = 0;
  for (std::int64_t i = 0; i < array.count(); ++i) most = std::max(most, std::abs(array[i]));
  return most;
}

void expect_transforms(const device::Place& place, ElementType type, const Sphere& sphere,
                       bool weighted) {
  const SphereShape& shape = sphere.shape;
  std::vector<double> cosines;
  std::vector<double> rows;
  for (std::int64_t k = 0; k < shape.latitudes; ++k) {
    const double angle =
        std::numbers::pi * (static_cast<double>(k) + 0.5) / static_cast<double>(shape.latitudes);
    cosines.push_back(std::cos(angle));
    rows.push_back(1 + std::sin(angle));
  }
  Array table(type, sphere_table_elements(shape));
  fill_sphere_table(type, shape, cosines, table.data());
  const std::int64_t points = sphere.batch * shape.points() * sphere.channels;
  const std::int64_t numbers = shape.rows() * sphere.batch * sphere.channels * 2;
  const Array field = random_array(type, points, 1);
  const Array given = random_array(type, numbers, 2);
  Array coefficients[2] = {Array(type, numbers, 7.0), Array(type, numbers, 7.0)};
  Array made[2] = {Array(type, points, 7.0), Array(type, points, 7.0)};
  Array workspace(ElementType::Float64, sphere_workspace_bytes(type, shape, 1) / 8);
  SphereArguments arguments{
      .type = type,
      .shape = shape,
      .table = table.data(),
      .factors = {weighted ? rows.data() : nullptr, 0.5, weighted ? 2.0 : 1.0},
      .batch = sphere.batch,
      .channels = sphere.channels,
      .workspace = workspace.data()};
  arguments.grid = const_cast<void*>(field.data());
  arguments.coefficients = coefficients[0].data();
  sphere_analysis(host, arguments);
  arguments.grid = made[0].data();
  arguments.coefficients = const_cast<void*>(given.data());
  sphere_synthesis(host, arguments);
  {
    OnPlace tables(place, std::as_const(table));
    OnPlace weights(place, std::as_const(rows));
    OnPlace space(place, workspace);
    OnPlace from_field(place, field);
    OnPlace from_numbers(place, given);
    OnPlace to_numbers(place, coefficients[1]);
    OnPlace to_field(place, made[1]);
    arguments.table = tables.data();
    arguments.factors.rows = weighted ? weights.as<double>() : nullptr;
    arguments.workspace = space.data();
    arguments.grid = from_field.data();
    arguments.coefficients = to_numbers.data();
    device::sphere_analysis(place, arguments);
    arguments.grid = to_field.data();
    arguments.coefficients = from_numbers.data();
    device::sphere_synthesis(place, arguments);
  }
  const double slack = 64 * rounding(type);
  const std::string what = name_of(place) + ", " + std::to_string(shape.latitudes) + " x " +
                           std::to_string(shape.longitudes) + " x " +
                           std::to_string(sphere.channels);
  expect_near(coefficients[1], values_of(coefficients[0]), 0, slack * largest(coefficients[0]),
              "analysis " + what);
  expect_near(made[1], values_of(made[0]), 0, slack * largest(made[0]), "synthesis " + what);
}

TEST(DeviceSphere, TransformsAreTheCpusButForTheOrderOfSums) {
  for (const device::Place& place : places()) {
    for (const ElementType type : wide_types) {
      for (const Sphere& sphere : spheres) {
        for (const bool weighted : {false, true}) expect_transforms(place, type, sphere, weighted);
      }
    }
  }
}

struct Folded {
  SphereShape shape;
  std::int64_t batch;
  std::int64_t channels;
  std::int64_t first;
  std::int64_t count;
};
// With and without an equator, and a place at a quarter of the circle; columns of whole packs, of
// several entries, and others.
const Folded folded[] = {
    {{4, 8, 3, 2}, 1, 1, 0, 1},       {{5, 10, 5, 5}, 2, 3, 2, 3},
    {{13, 24, 12, 12}, 2, 16, 8, 24}, {{12, 22, 9, 8}, 3, 24, 0, 72},
    {{9, 16, 12, 9}, 1, 40, 32, 8},
};

void expect_equal(const Array& made, const Array& wanted, const std::string& what) {
  expect_near(made, values_of(wanted), 0, 0, what);
}

void expect_folds(const device::Place& place, ElementType type, const Folded& of, bool weighted) {
  const SphereShape& shape = of.shape;
  const SphereProductSizes sizes(shape);
  const ElementType wide = accumulation_type(type);
  std::vector<double> rows;
  for (std::int64_t k = 0; k < shape.latitudes; ++k)
    rows.push_back(1 + 0.25 * static_cast<double>(std::min(k, shape.latitudes - 1 - k)));
  SphereColumns columns{.field_type = type,
                        .shape = shape,
                        .factors = {weighted ? rows.data() : nullptr, 0.5, weighted ? 2.0 : 1.0},
                        .batch = of.batch,
                        .channels = of.channels,
                        .first = of.first,
                        .count = of.count};
  const Array field = random_array(type, of.batch * shape.points() * of.channels, 1);
  const Array numbers = random_array(wide, shape.rows() * of.batch * of.channels * 2, 2);
  const Array between = random_array(wide, sizes.folded(of.count), 3);
  const Array sums = random_array(wide, sizes.series(of.count), 4);
  // What belongs to other columns is left as it is.
  Array to_folded[2] = {Array(wide, between.count(), 7.0), Array(wide, between.count(), 7.0)};
  Array to_field[2] = {Array(type, field.count(), 7.0), Array(type, field.count(), 7.0)};
  Array to_series[2] = {Array(wide, sums.count(), 7.0), Array(wide, sums.count(), 7.0)};
  Array to_numbers[2] = {Array(wide, numbers.count(), 7.0), Array(wide, numbers.count(), 7.0)};
  sphere_fold(host, columns, field.data(), to_folded[0].data());
  sphere_unfold(host, columns, between.data(), to_field[0].data());
  sphere_series(host, columns, numbers.data(), to_series[0].data());
  sphere_coefficients(host, columns, sums.data(), to_numbers[0].data());
  {
    OnPlace weights(place, std::as_const(rows));
    OnPlace from_field(place, field);
    OnPlace from_numbers(place, numbers);
    OnPlace from_between(place, between);
    OnPlace from_sums(place, sums);
    OnPlace folds(place, to_folded[1]);
    OnPlace fields(place, to_field[1]);
    OnPlace series(place, to_series[1]);
    OnPlace coefficients(place, to_numbers[1]);
    columns.factors.rows = weighted ? weights.as<double>() : nullptr;
    device::sphere_fold(place, columns, from_field.data(), folds.data());
    device::sphere_unfold(place, columns, from_between.data(), fields.data());
    device::sphere_series(place, columns, from_numbers.data(), series.data());
    device::sphere_coefficients(place, columns, from_sums.data(), coefficients.data());
  }
  const std::string what = name_of(place) + ", " + std::to_string(shape.latitudes) + " x " +
                           std::to_string(shape.longitudes) + " columns " +
                           std::to_string(of.first) + " + " + std::to_string(of.count);
  expect_equal(to_folded[1], to_folded[0], "folded " + what);
  expect_equal(to_field[1], to_field[0], "field " + what);
  expect_equal(to_series[1], to_series[0], "series " + what);
  expect_equal(to_numbers[1], to_numbers[0], "coefficients " + what);
}

TEST(DeviceSphere, FoldsAsTheCpu) {
  for (const device::Place& place : places()) {
    for (const ElementType type : all_types) {
      for (const Folded& of : folded) {
        for (const bool weighted : {false, true}) expect_folds(place, type, of, weighted);
      }
    }
  }
}

}  // namespace

}  // namespace garonne::kernels::test
