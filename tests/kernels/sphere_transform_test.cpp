// Spherical harmonic transforms against plain sums over all points, in double, and the identities
// that they owe.
#include "kernels/arrays.hpp"

#include "base/error.hpp"
#include "base/legendre_table.hpp"
#include "base/sphere_grid.hpp"
#include "kernels/sphere_transform.hpp"

#include <cmath>
#include <numbers>

namespace garonne::kernels::test {

namespace {

constexpr double pi = std::numbers::pi;

struct Case {
  SphereShape shape;
  std::int64_t batch;
  std::int64_t channels;
};

// One row at the equator or none; orders at and below the highest frequency; fewer orders than
// degrees; lengths with every radix, a large prime and an odd one; channels that fill no line, a
// line, more than a chunk.
const Case cases[] = {
    {{2, 4, 1, 1}, 1, 1},   {{5, 8, 5, 5}, 2, 1},      {{8, 14, 8, 8}, 1, 3},
    {{9, 15, 12, 7}, 3, 5}, {{12, 22, 12, 11}, 1, 8},  {{16, 30, 10, 9}, 2, 33},
    {{7, 1, 6, 1}, 1, 16},  {{33, 60, 22, 22}, 1, 40}, {{10, 26, 9, 9}, 1, 16},
};

std::string describe(const Case& item) {
  const SphereShape& s = item.shape;
  return std::to_string(s.latitudes) + "x" + std::to_string(s.longitudes) + " degrees " +
         std::to_string(s.degrees) + " orders " + std::to_string(s.orders) + " channels " +
         std::to_string(item.batch) + "x" + std::to_string(item.channels);
}

struct Transform {
  Transform(const Case& item, ElementType type, SphereGridKind kind = SphereGridKind::LegendreGauss)
      : grid(make_sphere_grid(kind, item.shape.latitudes, item.shape.longitudes)),
        table(type, sphere_table_elements(item.shape)),
        workspace(ElementType::Float32, sphere_workspace_bytes(type, item.shape, 3) / 4, NAN) {
    fill_sphere_table(type, item.shape, grid.cosines, table.data());
    call.type = type;
    call.shape = item.shape;
    call.table = table.data();
    call.factors = {grid.weights.data(), 0.75, 1.5};
    call.batch = item.batch;
    call.channels = item.channels;
    call.workspace = workspace.data();
    call.threads = 3;
  }
  std::int64_t grid_elements() const { return call.batch * call.shape.points() * call.channels; }
  std::int64_t coefficient_elements() const {
    return 2 * call.shape.rows() * call.batch * call.channels;
  }
  bool alone(std::int64_t order) const { return order == 0 || 2 * order == call.shape.longitudes; }
  double factor(std::int64_t latitude, std::int64_t order) const {
    return (call.factors.rows ? call.factors.rows[latitude] : 1) *
           (alone(order) ? call.factors.single : call.factors.paired);
  }
  std::int64_t grid_index(std::int64_t entry, std::int64_t k, std::int64_t j,
                          std::int64_t channel) const {
    return ((entry * call.shape.latitudes + k) * call.shape.longitudes + j) * call.channels +
           channel;
  }
  // Of the real part; the imaginary part is next to it.
  std::int64_t coefficient_index(std::int64_t l, std::int64_t m, std::int64_t entry,
                                 std::int64_t channel) const {
    return 2 * (((call.shape.first_row(l) + m) * call.batch + entry) * call.channels + channel);
  }
  Array analyse(Array& field) {
    Array coefficients(call.type, coefficient_elements(), 1e9);
    call.grid = field.data();
    call.coefficients = coefficients.data();
    sphere_analysis(host, call);
    return coefficients;
  }
  Array synthesise(Array& coefficients) {
    Array field(call.type, grid_elements(), 1e9);
    call.grid = field.data();
    call.coefficients = coefficients.data();
    sphere_synthesis(host, call);
    return field;
  }

  SphereGrid grid;
  Array table;
  Array workspace;
  SphereArguments call;
};

// visit(coefficient, point, Re exp(imλ) · weight, Im): all that one sum is made of.
template <typename Visit>
void for_each_term(const Transform& problem, const Visit& visit) {
  const SphereShape& s = problem.call.shape;
  const LegendreTable table = make_legendre_table(s.degrees, s.orders, problem.grid.cosines);
  for (std::int64_t l = 0; l < s.degrees; ++l) {
    for (std::int64_t m = 0; m <= std::min(l, s.orders - 1); ++m) {
      for (std::int64_t k = 0; k < s.latitudes; ++k) {
        const double weight = table.at(l, m)[static_cast<std::size_t>(k)] * problem.factor(k, m);
        for (std::int64_t j = 0; j < s.longitudes; ++j) {
          const double angle = 2 * pi * static_cast<double>(m * j % s.longitudes) /
                               static_cast<double>(s.longitudes);
          visit(l, m, k, j, weight * std::cos(angle), weight * std::sin(angle));
        }
      }
    }
  }
}

template <typename Visit>
void for_each_column(const Transform& problem, const Visit& visit) {
  for (std::int64_t entry = 0; entry < problem.call.batch; ++entry) {
    for (std::int64_t channel = 0; channel < problem.call.channels; ++channel)
      visit(entry, channel);
  }
}

double largest_of(const std::vector<double>& values) {
  double largest = 0;
  for (const double value : values) largest = std::max(largest, std::abs(value));
  return largest;
}

double product(const Array& a, const Array& b) {
  double sum = 0;
  for (std::int64_t i = 0; i < a.count(); ++i) sum += a[i] * b[i];
  return sum;
}

TEST(SphereTransform, AnalysisIsTheSumOverPoints) {
  for (const ElementType type : {ElementType::Float32, ElementType::Float64}) {
    for (const Case& item : cases) {
      Transform problem(item, type);
      Array field = random_array(type, problem.grid_elements(), 5);
      const Array coefficients = problem.analyse(field);
      std::vector<double> wanted(static_cast<std::size_t>(problem.coefficient_elements()));
      for_each_term(problem, [&](auto l, auto m, auto k, auto j, double re, double im) {
        for_each_column(problem, [&](auto entry, auto channel) {
          const auto at = static_cast<std::size_t>(problem.coefficient_index(l, m, entry, channel));
          const double value = field[problem.grid_index(entry, k, j, channel)];
          wanted[at] += re * value;
          if (!problem.alone(m)) wanted[at + 1] -= im * value;
        });
      });
      expect_near(coefficients, wanted, 8 * rounding(type),
                  64 * rounding(type) * (largest_of(wanted) + 1), describe(item));
    }
  }
}

TEST(SphereTransform, SynthesisIsTheSumOverDegreesAndOrders) {
  for (const ElementType type : {ElementType::Float32, ElementType::Float64}) {
    for (const Case& item : cases) {
      Transform problem(item, type);
      Array coefficients = random_array(type, problem.coefficient_elements(), 6);
      const Array field = problem.synthesise(coefficients);
      std::vector<double> wanted(static_cast<std::size_t>(problem.grid_elements()));
      for_each_term(problem, [&](auto l, auto m, auto k, auto j, double re, double im) {
        for_each_column(problem, [&](auto entry, auto channel) {
          const std::int64_t from = problem.coefficient_index(l, m, entry, channel);
          double& sum = wanted[static_cast<std::size_t>(problem.grid_index(entry, k, j, channel))];
          if (problem.alone(m)) {
            sum += re * coefficients[from];
          } else {
            sum += 2 * (re * coefficients[from] - im * coefficients[from + 1]);
          }
        });
      });
      expect_near(field, wanted, 8 * rounding(type), 64 * rounding(type) * (largest_of(wanted) + 1),
                  describe(item));
    }
  }
}

// <analysis f, c> = <f, synthesis c> with half the factor of paired orders.
TEST(SphereTransform, SynthesisIsTheAdjointOfAnalysis) {
  for (const Case& item : cases) {
    Transform problem(item, ElementType::Float64);
    Array field = random_array(ElementType::Float64, problem.grid_elements(), 5);
    Array coefficients = random_array(ElementType::Float64, problem.coefficient_elements(), 6);
    const Array analysed = problem.analyse(field);
    problem.call.factors.paired /= 2;
    const Array synthesised = problem.synthesise(coefficients);
    EXPECT_NEAR(product(analysed, coefficients), product(field, synthesised),
                1e-13 * static_cast<double>(field.count()))
        << describe(item);
  }
}

// Coefficients -> grid -> coefficients, the largest error over the largest coefficient. The bounds
// in float32 and float64 are those that torch-harmonics 0.8 reached on the same sizes.
TEST(SphereTransform, RoundTripGivesTheCoefficientsBack) {
  struct Trip {
    SphereGridKind kind;
    SphereShape shape;
    double float32;
    double float64;
  };
  const Trip trips[] = {
      {SphereGridKind::LegendreGauss, {64, 128, 64, 64}, 2.1e-7, 5e-14},
      {SphereGridKind::Equiangular, {181, 360, 91, 91}, 2.0e-7, 6e-15},
      {SphereGridKind::LegendreGauss, {240, 480, 240, 240}, 2.9e-7, 4.3e-13},
      // No other program's: the bounds of the grid with poles.
      {SphereGridKind::EquiangularMidpoints, {180, 360, 90, 90}, 2.0e-7, 6e-15},
  };
  for (const Trip& trip : trips) {
    for (const ElementType type : {ElementType::Float32, ElementType::Float64}) {
      const Case item{trip.shape, 1, 2};
      SCOPED_TRACE(describe(item));
      Transform problem(item, type, trip.kind);
      Array coefficients = random_array(type, problem.coefficient_elements(), 7, 1.0);
      for (std::int64_t l = 0; l < trip.shape.degrees; ++l) {
        for (const std::int64_t channel : {0, 1})
          coefficients.set(problem.coefficient_index(l, 0, 0, channel) + 1, 0);
      }
      problem.call.factors = {};
      Array field = problem.synthesise(coefficients);
      const double step = 2 * pi / static_cast<double>(trip.shape.longitudes);
      problem.call.factors = {problem.grid.weights.data(), step, step};
      const Array back = problem.analyse(field);
      double squares = 0;
      double errors = 0;
      for (std::int64_t i = 0; i < back.count(); ++i) {
        squares += coefficients[i] * coefficients[i];
        errors += std::pow(back[i] - coefficients[i], 2);
      }
      const double error = std::sqrt(errors / squares);
      EXPECT_LE(error, type == ElementType::Float32 ? trip.float32 : trip.float64);
      RecordProperty("error", std::to_string(error));
    }
  }
}

TEST(SphereTransform, BitsDoNotDependOnThreads) {
  const Case item{{33, 64, 22, 20}, 2, 40};
  for (const ElementType type : {ElementType::Float32, ElementType::Float64}) {
    Transform problem(item, type);
    Array field = random_array(type, problem.grid_elements(), 5);
    Array coefficients = random_array(type, problem.coefficient_elements(), 5);
    expect_thread_independent([&] { return problem.analyse(field); });
    expect_thread_independent([&] { return problem.synthesise(coefficients); });
    const Array before = problem.analyse(field);
    problem.call.threads = 1;
    EXPECT_TRUE(problem.analyse(field).same_bits(before));
  }
}

TEST(SphereTransform, RefusesWhatItCannotDo) {
  SphereArguments call;
  call.shape = {8, 8, 4, 5};
  EXPECT_THROW(sphere_analysis(host, call), InternalError);
  call.shape = {8, 8, 8, 6};
  EXPECT_THROW(sphere_synthesis(host, call), InternalError);
  call.shape = {8, 8, 4, 4};
  call.type = ElementType::BFloat16;
  EXPECT_THROW(sphere_analysis(host, call), InternalError);
}

}  // namespace

}  // namespace garonne::kernels::test
