#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <numbers>
#include <numeric>

#include "base/error.hpp"
#include "base/legendre_table.hpp"
#include "base/sphere_grid.hpp"

namespace garonne {
namespace {

constexpr double pi = std::numbers::pi;
constexpr SphereGridKind kinds[] = {SphereGridKind::Equiangular,
                                    SphereGridKind::EquiangularMidpoints,
                                    SphereGridKind::LegendreGauss};

TEST(SphereGrid, LegendreGaussRootsAndWeights) {
  // mpmath with 40 digits: Newton's iteration on Bonnet's recurrence.
  struct Known {
    std::int64_t latitudes;
    std::size_t row;
    double cosine;
    double weight;
  };
  const Known known[] = {
      {5, 0, 0.90617984593866399, 0.23692688505618909},
      {5, 1, 0.53846931010568309, 0.47862867049936647},
      {64, 0, 0.99930504173577214, 0.0017832807216964329},
      {64, 16, 0.68523631305423324, 0.035472213256882384},
      {720, 0, 0.99999442982655205, 1.4294850570490205e-5},
      {720, 180, 0.7051769916457813, 0.0030915843360267151},
  };
  for (const Known& item : known) {
    const SphereGrid grid = make_sphere_grid(SphereGridKind::LegendreGauss, item.latitudes, 4);
    EXPECT_NEAR(grid.cosines[item.row], item.cosine, 1.2e-16);
    EXPECT_NEAR(grid.weights[item.row] / item.weight, 1, 1e-14) << item.latitudes;
    EXPECT_NEAR(grid.colatitudes[item.row], std::acos(item.cosine), 1e-13);
  }
}

TEST(SphereGrid, MidpointsAndFejersWeights) {
  const SphereGrid grid = make_sphere_grid(SphereGridKind::EquiangularMidpoints, 3, 4);
  // By hand: 30°, 90° and 150°; a parabola through them, integrated.
  EXPECT_NEAR(grid.cosines[0], std::sqrt(0.75), 1e-16);
  EXPECT_EQ(grid.cosines[1], 0);
  EXPECT_NEAR(grid.weights[0], 4.0 / 9, 1e-16);
  EXPECT_NEAR(grid.weights[1], 10.0 / 9, 1e-15);
  // 32 rows, as WeatherBench's of 5.625 degrees: weights differ from the areas of their bands.
  const SphereGrid coarse = make_sphere_grid(SphereGridKind::EquiangularMidpoints, 32, 64);
  EXPECT_NEAR(90 - coarse.colatitudes[0] * 180 / pi, 87.1875, 1e-12);
  EXPECT_TRUE(is_sphere_grid("equiangular-midpoints"));
  EXPECT_FALSE(is_sphere_grid("regional"));
}

// The integral of x^n over [-1, 1].
TEST(SphereGrid, QuadratureIsExactUpToItsDegree) {
  for (const SphereGridKind kind : kinds) {
    for (const std::int64_t latitudes : {2, 3, 6, 7, 32, 181}) {
      SCOPED_TRACE(sphere_grid_name(kind) + " " + std::to_string(latitudes));
      const SphereGrid grid = make_sphere_grid(kind, latitudes, 4);
      const bool gauss = kind == SphereGridKind::LegendreGauss;
      const std::int64_t exact = gauss ? 2 * latitudes : latitudes;
      const auto integral = [&](std::int64_t power) {
        double sum = 0;
        for (std::size_t k = 0; k < grid.weights.size(); ++k)
          sum += grid.weights[k] * std::pow(grid.cosines[k], static_cast<double>(power));
        return sum;
      };
      for (std::int64_t power = 0; power < exact; ++power) {
        const double expected = power % 2 == 0 ? 2.0 / static_cast<double>(power + 1) : 0;
        EXPECT_NEAR(integral(power), expected, 1e-14) << "power " << power;
      }
      // And no further (odd powers vanish by symmetry): else this test shows nothing.
      if (latitudes < 8) {
        const std::int64_t beyond = exact + exact % 2;
        EXPECT_GT(std::abs(integral(beyond) - 2.0 / static_cast<double>(beyond + 1)), 1e-6);
      }
      EXPECT_EQ(exact_degrees(kind, latitudes), gauss ? latitudes : (latitudes + 1) / 2);
    }
  }
}

TEST(SphereGrid, RowsMirrorEachOtherAndRunSouth) {
  for (const SphereGridKind kind : kinds) {
    for (const std::int64_t latitudes : {2, 9, 64}) {
      const SphereGrid grid = make_sphere_grid(kind, latitudes, 8);
      const auto last = static_cast<std::size_t>(latitudes) - 1;
      for (std::size_t k = 0; k <= last; ++k) {
        EXPECT_EQ(grid.cosines[k], -grid.cosines[last - k]);
        EXPECT_EQ(grid.sines[k], grid.sines[last - k]);
        EXPECT_EQ(grid.weights[k], grid.weights[last - k]);
        EXPECT_NEAR(std::cos(grid.colatitudes[k]), grid.cosines[k], 1e-15);
        EXPECT_NEAR(std::sin(grid.colatitudes[k]), grid.sines[k], 1e-15);
        if (k > 0) {
          EXPECT_GT(grid.colatitudes[k], grid.colatitudes[k - 1]);
        }
      }
      const auto weights = mean_one_weights(grid);
      EXPECT_NEAR(std::accumulate(weights.begin(), weights.end(), 0.0),
                  static_cast<double>(latitudes), 1e-12);
    }
  }
  EXPECT_EQ(make_sphere_grid(SphereGridKind::Equiangular, 9, 8).sines[0], 0);
}

TEST(SphereGrid, RefusesWhatIsNoGrid) {
  EXPECT_THROW(make_sphere_grid(SphereGridKind::Equiangular, 1, 8), ConfigError);
  EXPECT_THROW(make_sphere_grid(SphereGridKind::LegendreGauss, 4, 0), ConfigError);
  EXPECT_THROW(sphere_grid_kind("data.layout", "cube"), ConfigError);
  for (const SphereGridKind kind : kinds)
    EXPECT_EQ(sphere_grid_kind("data.layout", sphere_grid_name(kind)), kind);
}

TEST(LegendreTable, KnownValues) {
  // mpmath with 40 digits: the Ferrers function as a hypergeometric one, without (-1)^m, times the
  // norm. The last two pass through values below the smallest double.
  struct Known {
    std::int64_t degree;
    std::int64_t order;
    double cosine;
    double value;
  };
  const Known known[] = {
      {1, 0, 0.5, 0.24430125595145996},          {7, 3, 0.3, -0.17111261848003061},
      {40, 17, -0.7, 0.23419443714425976},       {240, 100, 0.3, -0.30994086673547391},
      {240, 239, 0.05, 0.95873133947867059},     {719, 2, 0.99999, 5.1660392447012362},
      {719, 500, 0.6, 0.033255732106838041},     {2000, 1000, 0.875, 0.00096233409644692502},
      {2000, 1900, 0.4, 2.2716222464060596e-15},
  };
  for (const Known& item : known) {
    SCOPED_TRACE(std::to_string(item.degree) + " " + std::to_string(item.order));
    std::vector<double> values(static_cast<std::size_t>(item.degree + 1 - item.order));
    fill_legendre_order(item.order, item.degree + 1, {&item.cosine, 1}, values.data());
    EXPECT_NEAR(values.back() / item.value, 1, item.degree < 100 ? 3e-14 : 2e-12);
  }
}

// The addition theorem: Σ_m |Y_lm|² = (2l+1)/4π at every point, and half the sum of the squared
// gradients is l(l+1)(2l+1)/8π for each of the two components.
TEST(LegendreTable, AdditionTheoremOfValuesAndGradients) {
  const std::array<double, 7> cosines = {1.0, 0.99999, 0.8, 0.1, 0.0, -0.3, -1.0};
  const std::int64_t degrees = 300;
  const LegendreTable table = make_legendre_table(degrees, degrees, cosines);
  const VectorLegendreTable vectors = make_vector_legendre_table(degrees, degrees, cosines);
  for (std::int64_t l = 0; l < degrees; ++l) {
    for (std::size_t k = 0; k < cosines.size(); ++k) {
      double values = 0;
      double polar = 0;
      double zonal = 0;
      for (std::int64_t m = 0; m <= l; ++m) {
        const double share = m == 0 ? 1 : 2;
        values += share * std::pow(table.at(l, m)[k], 2);
        polar += share * std::pow(vectors.polar_derivative.at(l, m)[k], 2);
        zonal += share * std::pow(vectors.order_over_sine.at(l, m)[k], 2);
      }
      const auto degree = static_cast<double>(l);
      EXPECT_NEAR(values * 4 * pi / (2 * degree + 1), 1, 1e-12) << l << " at " << cosines[k];
      const double gradient = degree * (degree + 1) * (2 * degree + 1) / (8 * pi);
      EXPECT_NEAR(polar, gradient, 1e-12 * gradient) << l << " at " << cosines[k];
      EXPECT_NEAR(zonal, gradient, 1e-12 * gradient) << l << " at " << cosines[k];
    }
  }
}

// With weights of the grid, functions of one order are orthonormal: 2π Σ_k w_k P̄_l P̄_l' = δ.
TEST(LegendreTable, OrthonormalUnderTheQuadrature) {
  for (const SphereGridKind kind : kinds) {
    const SphereGrid grid = make_sphere_grid(kind, 47, 4);
    const std::int64_t degrees = exact_degrees(kind, 47);
    const std::int64_t orders = degrees - 3;
    const LegendreTable table = make_legendre_table(degrees, orders, grid.cosines);
    EXPECT_EQ(table.values.size(),
              static_cast<std::size_t>((degrees * (degrees + 1) / 2 - 6) * table.points));
    for (std::int64_t m = 0; m < orders; ++m) {
      for (std::int64_t l = m; l < degrees; ++l) {
        for (std::int64_t other = m; other <= l; ++other) {
          double sum = 0;
          for (std::size_t k = 0; k < grid.weights.size(); ++k)
            sum += 2 * pi * grid.weights[k] * table.at(l, m)[k] * table.at(other, m)[k];
          ASSERT_NEAR(sum, l == other ? 1 : 0, 1e-13) << l << " " << other << " order " << m;
        }
      }
    }
  }
}

// Against the textbook forms, which divide by sin θ, and a difference quotient.
TEST(LegendreTable, DerivativeAndOrderOverSine) {
  const double angle = 0.7;
  const double step = 1e-5;
  const std::array<double, 3> cosines = {std::cos(angle), std::cos(angle - step),
                                         std::cos(angle + step)};
  const LegendreTable table = make_legendre_table(20, 12, cosines);
  const VectorLegendreTable vectors = make_vector_legendre_table(20, 12, cosines);
  for (std::int64_t m = 0; m < 12; ++m) {
    for (std::int64_t l = m; l < 20; ++l) {
      const auto values = table.at(l, m);
      EXPECT_NEAR(vectors.polar_derivative.at(l, m)[0], (values[2] - values[1]) / (2 * step), 1e-6);
      EXPECT_NEAR(vectors.order_over_sine.at(l, m)[0],
                  static_cast<double>(m) * values[0] / std::sin(angle), 1e-13);
    }
  }
}

TEST(LegendreTable, RefusesMoreOrdersThanDegrees) {
  const std::array<double, 1> cosines = {0.5};
  EXPECT_THROW(make_legendre_table(4, 5, cosines), ConfigError);
  EXPECT_THROW(make_legendre_table(4, 0, cosines), ConfigError);
}

}  // namespace
}  // namespace garonne
