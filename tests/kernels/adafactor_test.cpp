// Kernels of Adafactor on CPUs against their formulas, on parts of matrices.
#include "base/error.hpp"
#include "base/index.hpp"
#include "kernels/adafactor_parts.hpp"
#include "kernels/adafactor_update.hpp"
#include "kernels/arrays.hpp"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace garonne::kernels::test {
namespace {

// The indices in the whole of those here, run after run.
std::vector<std::int64_t> indices_of(const SideCut& cut, std::int64_t count) {
  std::vector<std::int64_t> indices;
  for (std::int64_t run = 0; static_cast<std::int64_t>(indices.size()) < count; ++run) {
    for (std::int64_t i = 0; i < cut.run; ++i) indices.push_back(cut.start + run * cut.stride + i);
  }
  return indices;
}

// Where the elements of a part are.
std::vector<std::pair<std::int64_t, std::int64_t>> places_of(const MatrixPart& part) {
  const auto columns = indices_of(part.column_cut, part.width);
  const auto rows = indices_of(part.row_cut, (part.first + part.elements) / part.width + 1);
  std::vector<std::pair<std::int64_t, std::int64_t>> places;
  for (std::int64_t e = part.first; e < part.first + part.elements; ++e)
    places.emplace_back(rows[as_index(e / part.width)], columns[as_index(e % part.width)]);
  return places;
}

Array positive(ElementType type, std::int64_t count, std::uint32_t seed) {
  Array array = random_array(type, count, seed);
  for (std::int64_t i = 0; i < count; ++i) array.set(i, array[i] * array[i] + 0.25);
  return array;
}

void expect_formula(const NamedPart& named, ElementType type, const Adafactor& given,
                    double scale) {
  const MatrixPart& part = named.part;
  const std::int64_t n = part.elements + named.padding;
  SCOPED_TRACE(named.name);
  Array parameter = random_array(type, n, 7);
  for (std::int64_t i = part.elements; i < n; ++i) parameter.set(i, 0);
  const Array gradient = random_array(type, n, 8);
  Array rows = positive(type, part.rows, 9);
  Array columns = positive(type, part.columns, 10);
  const double unit = rounding(type);
  const auto places = places_of(part);

  // What the part adds.
  std::vector<double> sums(as_index(AdafactorSums::sides + part.rows + part.columns));
  std::vector<double> wanted = sums;
  Adafactor options = given;
  add_adafactor_sums(host, type, parameter.data(), rows.data(), gradient.data(), part, options,
                     {.value = scale}, sums.data());
  for (std::int64_t i = 0; i < part.elements; ++i) {
    const double slope = gradient[i] * scale + options.l2 * parameter[i];
    const auto [row, column] = places[as_index(i)];
    wanted[0] += parameter[i] * parameter[i];
    wanted[1] += slope * slope;
    wanted[as_index(3 + row)] += slope * slope;
    wanted[as_index(3 + part.rows + column)] += slope * slope;
  }
  for (std::int64_t i = 0; part.leads && i < part.rows; ++i) wanted[2] += rows[i];
  // A slope is the difference of numbers as large as 1.
  for (std::size_t k = 0; k < sums.size(); ++k) {
    ASSERT_NEAR(sums[k], wanted[k], (16 * unit + 1e-13) * (wanted[k] + std::sqrt(wanted[k]))) << k;
  }

  // As if others had added theirs.
  for (std::size_t k = 0; k < sums.size(); ++k) sums[k] += 2.5 + 0.01 * static_cast<double>(k);
  options.sums = sums.data();
  const double all_rows = static_cast<double>(part.rows);
  const double all_columns = static_cast<double>(part.columns);
  const auto& rates = options.rates;
  const auto moment = [&](double before, double sum, double length) {
    return rates.kept * before + rates.added * (sum / length + options.square_epsilon);
  };
  const double mean = (rates.kept * sums[2] +
                       rates.added * (sums[1] / all_columns + all_rows * options.square_epsilon)) /
                      all_rows;
  std::vector<double> new_rows;
  std::vector<double> new_columns;
  for (std::int64_t i = 0; i < part.rows; ++i)
    new_rows.push_back(moment(rows[i], sums[as_index(3 + i)], all_columns));
  for (std::int64_t i = 0; i < part.columns; ++i)
    new_columns.push_back(moment(columns[i], sums[as_index(3 + part.rows + i)], all_rows));
  std::vector<double> directions;
  double squares = 0;
  for (std::int64_t i = 0; i < part.elements; ++i) {
    const auto [row, column] = places[as_index(i)];
    const double slope = gradient[i] * scale + options.l2 * parameter[i];
    directions.push_back(slope /
                         std::sqrt(new_rows[as_index(row)] * new_columns[as_index(column)] / mean));
    squares += directions.back() * directions.back();
  }
  double total = 1.0;
  add_adafactor_squares(host, type, parameter.data(), rows.data(), columns.data(), gradient.data(),
                        part, options, {.value = scale}, &total);
  ASSERT_NEAR(total, 1.0 + squares, (32 * unit + 1e-13) * total);

  const double of_whole = 1.7 * squares + 0.1;
  options.squares = &of_whole;
  double step = rates.learning_rate;
  const double elements = all_rows * all_columns;
  if (options.smallest_scale > 0)
    step *= std::max(options.smallest_scale, std::sqrt(sums[0] / elements));
  if (options.update_limit > 0)
    step /= std::max(1.0, std::sqrt(of_whole / elements) / options.update_limit);
  std::vector<double> moved;
  for (std::int64_t i = 0; i < n; ++i) {
    const double decay = 1 - rates.learning_rate * options.weight_decay;
    moved.push_back(i < part.elements ? parameter[i] * decay - step * directions[as_index(i)] : 0);
  }
  Array copy(ElementType::BFloat16, n, 3.0);
  adafactor_update(host, type, parameter.data(), rows.data(), columns.data(), gradient.data(), n,
                   part, options, {.value = scale}, copy.data());
  expect_near(parameter, moved, 16 * unit, 16 * unit, "parameter");
  expect_near(rows, new_rows, 4 * unit, 4 * unit, "row moments");
  expect_near(columns, new_columns, 4 * unit, 4 * unit, "column moments");
  Array rounded(ElementType::BFloat16, n);
  for (std::int64_t i = 0; i < n; ++i) rounded.set(i, parameter[i]);
  EXPECT_TRUE(copy.same_bits(rounded));
}

TEST(AdafactorUpdate, FollowsTheFormula) {
  for (const NamedPart& named : parts_of_matrices()) {
    for (const ElementType type : wide_types) {
      for (const int which : {0, 1, 2}) {
        Adafactor options;
        options.rates = {.learning_rate = 0.01, .kept = 0.7, .added = 0.3};
        options.weight_decay = which == 0 ? 0.1 : 0.0;
        options.l2 = which == 1 ? 0.03 : 0.0;
        options.update_limit = which == 2 ? 0.0 : 0.01;
        options.smallest_scale = which == 1 ? 0.0 : 0.3;
        expect_formula(named, type, options, 0.25);
      }
    }
  }
}

TEST(AdafactorUpdate, ChangesNothingWhereTheScaleIsNotFinite) {
  const MatrixPart part = whole_matrix(7, 13);
  const Array before = random_array(ElementType::Float32, 91, 1);
  Array parameter = before;
  Array rows = positive(ElementType::Float32, 7, 2);
  const Array rows_before = rows;
  Array columns = positive(ElementType::Float32, 13, 3);
  std::vector<double> sums(23, 0.0);
  double squares = 2.0;
  Adafactor options;
  options.sums = sums.data();
  options.squares = &squares;
  const Scalar none{.value = std::nan("")};
  add_adafactor_sums(host, ElementType::Float32, parameter.data(), rows.data(), before.data(), part,
                     options, none, sums.data());
  EXPECT_EQ(sums, std::vector<double>(23, 0.0));
  add_adafactor_squares(host, ElementType::Float32, parameter.data(), rows.data(), columns.data(),
                        before.data(), part, options, none, &squares);
  EXPECT_EQ(squares, 2.0);
  adafactor_update(host, ElementType::Float32, parameter.data(), rows.data(), columns.data(),
                   before.data(), 91, part, options, none, nullptr);
  EXPECT_TRUE(parameter.same_bits(before));
  EXPECT_TRUE(rows.same_bits(rows_before));
  EXPECT_THROW(adafactor_update(host, ElementType::BFloat16, nullptr, nullptr, nullptr, nullptr, 0,
                                part, options, {.value = 1}, nullptr),
               InternalError);
}

TEST(AdafactorUpdate, HasTheSameBitsOnAnyNumberOfThreads) {
  const MatrixPart part = whole_matrix(300, 701);
  const std::int64_t n = part.elements;
  expect_thread_independent([&] {
    Array parameter = random_array(ElementType::Float32, n, 1);
    const Array gradient = random_array(ElementType::Float32, n, 2);
    Array rows = positive(ElementType::Float32, part.rows, 3);
    Array columns = positive(ElementType::Float32, part.columns, 4);
    std::vector<double> sums(as_index(AdafactorSums::sides + part.rows + part.columns));
    double squares = 0;
    Adafactor options;
    options.rates = {.learning_rate = 0.01, .kept = 0.7, .added = 0.3};
    add_adafactor_sums(host, ElementType::Float32, parameter.data(), rows.data(), gradient.data(),
                       part, options, {.value = 0.7}, sums.data());
    options.sums = sums.data();
    add_adafactor_squares(host, ElementType::Float32, parameter.data(), rows.data(), columns.data(),
                          gradient.data(), part, options, {.value = 0.7}, &squares);
    options.squares = &squares;
    adafactor_update(host, ElementType::Float32, parameter.data(), rows.data(), columns.data(),
                     gradient.data(), n, part, options, {.value = 0.7}, nullptr);
    return parameter;
  });
}

}  // namespace
}  // namespace garonne::kernels::test
