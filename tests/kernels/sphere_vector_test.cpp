// Divergence and vorticity: fields that are known, and identities.
#include "kernels/arrays.hpp"

#include "base/sphere_grid.hpp"
#include "kernels/sphere_vector.hpp"

#include <cmath>
#include <numbers>

namespace garonne::kernels::test {

namespace {

constexpr double pi = std::numbers::pi;

struct VectorProblem {
  VectorProblem(SphereGridKind kind, const SphereShape& given, std::int64_t channels,
                ElementType type = ElementType::Float64)
      : shape(given),
        grid(make_sphere_grid(kind, shape.latitudes, shape.longitudes)),
        value_table(type, sphere_table_elements(shape)),
        derivative_table(type, sphere_table_elements(shape)),
        order_table(type, sphere_table_elements(shape)),
        southward(type, shape.points() * channels),
        eastward(type, shape.points() * channels),
        divergence(type, 2 * shape.rows() * channels),
        vorticity(type, 2 * shape.rows() * channels) {
    fill_sphere_table(type, shape, LegendreFunction::Value, grid.cosines, value_table.data());
    fill_sphere_table(type, shape, LegendreFunction::PolarDerivative, grid.cosines,
                      derivative_table.data());
    fill_sphere_table(type, shape, LegendreFunction::OrderOverSine, grid.cosines,
                      order_table.data());
    call.type = type;
    call.shape = shape;
    call.derivative_table = derivative_table.data();
    call.order_table = order_table.data();
    call.weights = grid.weights.data();
    call.southward = southward.data();
    call.eastward = eastward.data();
    call.divergence = divergence.data();
    call.vorticity = vorticity.data();
    call.batch = 1;
    call.channels = channels;
    call.threads = 2;
  }
  // Values on the grid of scalar coefficients.
  Array scalar(Array& coefficients) {
    Array field(call.type, southward.count());
    Array workspace(ElementType::Float32, sphere_workspace_bytes(call.type, shape, 1) / 4);
    SphereArguments arguments;
    arguments.type = call.type;
    arguments.shape = shape;
    arguments.table = value_table.data();
    arguments.grid = field.data();
    arguments.coefficients = coefficients.data();
    arguments.batch = 1;
    arguments.channels = call.channels;
    arguments.workspace = workspace.data();
    sphere_synthesis(host, arguments);
    return field;
  }

  SphereShape shape;
  SphereGrid grid;
  Array value_table;
  Array derivative_table;
  Array order_table;
  Array southward;
  Array eastward;
  Array divergence;
  Array vorticity;
  SphereVectorArguments call;
};

double largest(const Array& array) {
  double value = 0;
  for (std::int64_t i = 0; i < array.count(); ++i) value = std::max(value, std::abs(array[i]));
  return value;
}

// u_e = sin θ turns like a solid body: vorticity 2 cos θ, divergence 0. u_s = sin θ flows from pole
// to pole: divergence 2 cos θ, vorticity 0.
TEST(SphereVector, SolidRotationAndFlowBetweenPoles) {
  for (const SphereGridKind kind : {SphereGridKind::LegendreGauss, SphereGridKind::Equiangular}) {
    VectorProblem problem(kind, {21, 40, 10, 10}, 2);
    for (std::int64_t k = 0; k < 21; ++k) {
      for (std::int64_t j = 0; j < 40; ++j) {
        const double sine = problem.grid.sines[static_cast<std::size_t>(k)];
        problem.eastward.set((k * 40 + j) * 2, sine);
        problem.southward.set((k * 40 + j) * 2 + 1, sine);
      }
    }
    sphere_vector_analysis(host, problem.call);
    const Array divergence = problem.scalar(problem.divergence);
    const Array vorticity = problem.scalar(problem.vorticity);
    for (std::int64_t k = 0; k < 21; ++k) {
      for (std::int64_t j = 0; j < 40; ++j) {
        const double cosine = problem.grid.cosines[static_cast<std::size_t>(k)];
        const std::int64_t at = (k * 40 + j) * 2;
        EXPECT_NEAR(vorticity[at], 2 * cosine, 1e-13);
        EXPECT_NEAR(divergence[at], 0, 1e-13);
        EXPECT_NEAR(divergence[at + 1], 2 * cosine, 1e-13);
        EXPECT_NEAR(vorticity[at + 1], 0, 1e-13);
      }
    }
  }
}

// The gradient of cos θ sin θ cos λ, with both components and its divergence, -6 times it.
TEST(SphereVector, GradientOfAHarmonic) {
  VectorProblem problem(SphereGridKind::LegendreGauss, {16, 32, 12, 12}, 1);
  for (std::int64_t k = 0; k < 16; ++k) {
    const double theta = problem.grid.colatitudes[static_cast<std::size_t>(k)];
    for (std::int64_t j = 0; j < 32; ++j) {
      const double angle = 2 * pi * static_cast<double>(j) / 32;
      problem.southward.set(k * 32 + j, std::cos(2 * theta) * std::cos(angle));
      problem.eastward.set(k * 32 + j, -std::cos(theta) * std::sin(angle));
    }
  }
  sphere_vector_analysis(host, problem.call);
  const Array divergence = problem.scalar(problem.divergence);
  const Array vorticity = problem.scalar(problem.vorticity);
  for (std::int64_t k = 0; k < 16; ++k) {
    const double theta = problem.grid.colatitudes[static_cast<std::size_t>(k)];
    for (std::int64_t j = 0; j < 32; ++j) {
      const double angle = 2 * pi * static_cast<double>(j) / 32;
      EXPECT_NEAR(divergence[k * 32 + j], -6 * std::cos(theta) * std::sin(theta) * std::cos(angle),
                  1e-13);
      EXPECT_NEAR(vorticity[k * 32 + j], 0, 1e-13);
    }
  }
}

// Divergence and vorticity -> field -> divergence and vorticity.
TEST(SphereVector, RoundTrip) {
  struct Trip {
    SphereGridKind kind;
    SphereShape shape;
    std::int64_t channels;
  };
  const Trip trips[] = {{SphereGridKind::LegendreGauss, {32, 64, 31, 31}, 3},
                        {SphereGridKind::LegendreGauss, {33, 66, 30, 20}, 17},
                        {SphereGridKind::Equiangular, {65, 128, 32, 32}, 1}};
  for (const Trip& trip : trips) {
    for (const ElementType type : {ElementType::Float32, ElementType::Float64}) {
      VectorProblem problem(trip.kind, trip.shape, trip.channels, type);
      const std::int64_t count = problem.divergence.count();
      problem.divergence = random_array(type, count, 3);
      problem.vorticity = random_array(type, count, 4);
      for (Array* coefficients : {&problem.divergence, &problem.vorticity}) {
        for (std::int64_t l = 0; l < trip.shape.degrees; ++l) {
          for (std::int64_t c = 0; c < trip.channels; ++c) {
            const std::int64_t at = 2 * (trip.shape.first_row(l) * trip.channels + c);
            coefficients->set(at + 1, 0);
            if (l == 0) coefficients->set(at, 0);
          }
        }
      }
      problem.call.divergence = problem.divergence.data();
      problem.call.vorticity = problem.vorticity.data();
      sphere_vector_synthesis(host, problem.call);
      Array divergence(type, count, 1e9);
      Array vorticity(type, count, 1e9);
      problem.call.divergence = divergence.data();
      problem.call.vorticity = vorticity.data();
      sphere_vector_analysis(host, problem.call);
      const double tolerance = 1000 * rounding(type) * largest(problem.divergence);
      for (std::int64_t i = 0; i < count; ++i) {
        ASSERT_NEAR(divergence[i], problem.divergence[i], tolerance);
        ASSERT_NEAR(vorticity[i], problem.vorticity[i], tolerance);
      }
    }
  }
}

}  // namespace

}  // namespace garonne::kernels::test
