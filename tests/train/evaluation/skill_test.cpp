// Errors, weights and spectra of forecasts beside slow sums.
#include "train/evaluation/skill.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <numbers>
#include <random>

#include "base/error.hpp"
#include "base/legendre_table.hpp"
#include "train/evaluation/power_spectrum.hpp"
#include "train/report/skill_page.hpp"

namespace garonne::train {
namespace {

constexpr double pi = std::numbers::pi;

std::vector<double> line(double first, double last, std::int64_t count) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < count; ++i) {
    values.push_back(first +
                     (last - first) * static_cast<double>(i) / static_cast<double>(count - 1));
  }
  return values;
}

data::FieldDatasetInfo on_sphere(const std::string& grid, std::vector<double> latitudes,
                                 std::vector<double> longitudes) {
  data::FieldDatasetInfo info;
  info.path = "here";
  info.points = {static_cast<std::int64_t>(latitudes.size()),
                 static_cast<std::int64_t>(longitudes.size())};
  info.axes = {"latitude", "longitude"};
  info.coordinates = {std::move(latitudes), std::move(longitudes)};
  info.grid = grid;
  return info;
}

// The whole sphere; from the south pole where `upward`.
data::FieldDatasetInfo whole_sphere(SphereGridKind kind, std::int64_t rows, std::int64_t columns,
                                    bool upward = false) {
  const SphereGrid grid = make_sphere_grid(kind, rows, columns);
  std::vector<double> latitudes;
  for (const double colatitude : grid.colatitudes) latitudes.push_back(90 - colatitude * 180 / pi);
  if (upward) std::reverse(latitudes.begin(), latitudes.end());
  return on_sphere(sphere_grid_name(kind), latitudes,
                   line(0, 360 - 360.0 / static_cast<double>(columns), columns));
}

data::FieldDatasetInfo plain(std::vector<std::int64_t> points, const std::string& grid) {
  data::FieldDatasetInfo info;
  info.path = "here";
  info.points = std::move(points);
  info.axes.resize(info.points.size());
  info.grid = grid;
  return info;
}

std::vector<float> random_field(std::size_t count, unsigned seed, double mean = 0) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(static_cast<float>(mean), 1.5F);
  std::vector<float> values(count);
  for (float& value : values) value = normal(engine);
  return values;
}

// --- weights ---

TEST(Weighting, AutoIsCellAreaOnLatitudesAndUniformElsewhere) {
  const auto globe = on_sphere("regional", {60, 50, 40}, {0, 10, 20, 30});
  EXPECT_EQ(make_weighting("auto", globe).name, "cell-area");
  EXPECT_EQ(make_weighting("auto", plain({3, 4}, "box")).name, "uniform");
  EXPECT_EQ(make_weighting("uniform", globe).rows, (std::vector<double>{1, 1, 1}));
}

TEST(Weighting, ValuesByHand) {
  // Rows of 90°, 0° and −90°: cells end at ±45°.
  const auto poles = on_sphere("equiangular", {90, 0, -90}, line(0, 270, 4));
  const auto area = make_weighting("cell-area", poles).rows;
  const double cap = 1 - std::sqrt(0.5);
  const double belt = 2 * std::sqrt(0.5);
  EXPECT_NEAR(area[0], 3 * cap / 2, 1e-14);
  EXPECT_NEAR(area[1], 3 * belt / 2, 1e-14);
  const auto cosine = make_weighting("cos-latitude", poles).rows;
  EXPECT_NEAR(cosine[0], 0, 1e-15);
  EXPECT_NEAR(cosine[1], 3, 1e-14);
  // Simpson's rule on [−1, 1]: 1/3, 4/3, 1/3.
  const auto simpson = make_weighting("quadrature", poles).rows;
  EXPECT_NEAR(simpson[0], 0.5, 1e-14);
  EXPECT_NEAR(simpson[1], 2, 1e-14);
}

TEST(Weighting, AllHaveMeanOneAndQuadratureIsExact) {
  for (const auto kind : {SphereGridKind::Equiangular, SphereGridKind::EquiangularMidpoints,
                          SphereGridKind::LegendreGauss}) {
    for (const bool upward : {false, true}) {
      const auto info = whole_sphere(kind, 12, 24, upward);
      for (const auto& name : weighting_names()) {
        const auto weights = make_weighting(name, info).rows;
        double sum = 0;
        for (const double weight : weights) sum += weight;
        EXPECT_NEAR(sum, 12, 1e-12) << name;
      }
      const auto weights = make_weighting("quadrature", info).rows;
      double fourth = 0;  // mean of sin⁴ latitude over the sphere: 1/5
      for (std::size_t row = 0; row < 12; ++row) {
        fourth += weights[row] / 12 * std::pow(std::sin(info.coordinates[0][row] * pi / 180), 4);
      }
      EXPECT_NEAR(fourth, 0.2, 1e-14);
    }
  }
}

TEST(Weighting, WhatCannotBeIsRefused) {
  const auto box = plain({4, 4}, "box");
  EXPECT_THROW(make_weighting("cos-latitude", box), ConfigError);
  EXPECT_THROW(make_weighting("area", box), ConfigError);
  EXPECT_THROW(make_weighting("quadrature", on_sphere("regional", {60, 50}, {0, 10})), ConfigError);
  // Rows in the middle of their bands, which the grid denies.
  EXPECT_THROW(make_weighting("quadrature", on_sphere("equiangular", {67.5, 22.5, -22.5, -67.5},
                                                      line(0, 315, 8))),
               ConfigError);
}

// --- errors ---

TEST(FieldSkill, IsThatOfPlainSums) {
  const auto info = on_sphere("regional", {70, 55, 40, 25, 10}, line(0, 60, 7));
  const auto truth = random_field(35, 1, 3);
  const auto forecast = random_field(35, 2, 2.5);
  const auto climatology = random_field(35, 3, 2.8);
  for (const char* name : {"cos-latitude", "cell-area", "uniform"}) {
    const Weighting weighting = make_weighting(name, info);
    const auto mean = [&](auto value) {
      long double sum = 0;
      for (std::size_t i = 0; i < 35; ++i) sum += weighting.rows[i / 7] * value(i);
      return static_cast<double>(sum / 35);
    };
    const auto f = [&](std::size_t i) { return static_cast<double>(forecast[i]); };
    const auto t = [&](std::size_t i) { return static_cast<double>(truth[i]); };
    const auto c = [&](std::size_t i) { return static_cast<double>(climatology[i]); };
    const FieldSkill skill = field_skill(forecast, truth, climatology, weighting);
    const double squares = mean([&](std::size_t i) { return std::pow(f(i) - t(i), 2); });
    EXPECT_NEAR(skill.squared_error, squares, 1e-12);
    EXPECT_NEAR(skill.bias, mean([&](std::size_t i) { return f(i) - t(i); }), 1e-12);
    EXPECT_NEAR(skill.relative_l2,
                std::sqrt(squares / mean([&](std::size_t i) { return t(i) * t(i); })), 1e-12);
    const double product = mean([&](std::size_t i) { return (f(i) - c(i)) * (t(i) - c(i)); });
    const double norms = mean([&](std::size_t i) { return std::pow(f(i) - c(i), 2); }) *
                         mean([&](std::size_t i) { return std::pow(t(i) - c(i), 2); });
    EXPECT_NEAR(skill.anomaly_correlation, product / std::sqrt(norms), 1e-12);
  }
}

TEST(FieldSkill, CorrelationOfAnomalies) {
  const Weighting uniform{"uniform", {1, 1}};
  const std::vector<float> climatology = {1, 2, 3, 4};
  const std::vector<float> truth = {2, 1, 5, 4};
  const std::vector<float> opposite = {0, 3, 1, 4};
  EXPECT_NEAR(field_skill(truth, truth, climatology, uniform).anomaly_correlation, 1, 1e-15);
  EXPECT_NEAR(field_skill(opposite, truth, climatology, uniform).anomaly_correlation, -1, 1e-15);
  EXPECT_TRUE(
      std::isnan(field_skill(climatology, truth, climatology, uniform).anomaly_correlation));
}

TEST(SkillTable, TheRootComesAfterTheMean) {
  SkillTable table(2, 1, 2);
  table.add(1, 0, 1, {10, 1, 0.5, 0.25, 0.5});
  table.add(1, 0, 1, {10, 49, -1.5, 0.75, 1});
  const auto rmse = table.rmse();
  ASSERT_EQ(rmse.size(), 4U);
  EXPECT_NEAR(rmse[3], 5, 1e-15);
  EXPECT_TRUE(std::isnan(rmse[0]));
  EXPECT_EQ(table.bias()[3], -0.5);
  EXPECT_EQ(table.relative_l2()[3], 0.5);
  EXPECT_EQ(table.anomaly_correlation()[3], 0.75);
}

// --- spectra ---

std::vector<double> spectrum_of(const data::FieldDatasetInfo& info,
                                const std::vector<float>& field) {
  PowerSpectrum spectrum(info, make_weighting("auto", info));
  std::vector<double> sum(spectrum.size());
  spectrum.add(field, sum);
  return sum;
}

TEST(PowerSpectrum, ZonalIsThatOfPlainSums) {
  for (const std::int64_t columns : {8, 9}) {
    const auto info = plain({3, columns}, "periodic");
    const auto field = random_field(static_cast<std::size_t>(3 * columns), 5, 1);
    const auto power = spectrum_of(info, field);
    ASSERT_EQ(static_cast<std::int64_t>(power.size()), columns / 2 + 1);
    double mean_square = 0;
    for (const double value : field) mean_square += value * value;
    double total = 0;
    for (std::int64_t k = 0; k <= columns / 2; ++k) {
      double expected = 0;
      for (std::int64_t row = 0; row < 3; ++row) {
        // Wavenumbers k and −k, where they are two.
        for (std::int64_t wave : {k, (columns - k) % columns}) {
          std::complex<double> sum = 0;
          for (std::int64_t j = 0; j < columns; ++j) {
            sum += static_cast<double>(field[static_cast<std::size_t>(row * columns + j)]) *
                   std::polar(
                       1.0, -2 * pi * static_cast<double>(wave * j) / static_cast<double>(columns));
          }
          expected += std::norm(sum) / static_cast<double>(columns * columns * 3);
          if (wave == (columns - wave) % columns) break;
        }
      }
      EXPECT_NEAR(power[static_cast<std::size_t>(k)], expected, 1e-12);
      total += power[static_cast<std::size_t>(k)];
    }
    EXPECT_NEAR(total, mean_square / static_cast<double>(3 * columns), 1e-12);
  }
}

TEST(PowerSpectrum, ZonalCountsTheLengthOfCircles) {
  const auto info = on_sphere("equiangular", {60, 20, -20, -60}, line(0, 315, 8));
  std::vector<float> field;
  for (int i = 0; i < 32; ++i) field.push_back(2 * std::cos(static_cast<float>(3 * i * pi / 4)));
  const auto power = spectrum_of(info, field);
  const auto weights = make_weighting("auto", info).rows;
  double expected = 0;
  for (std::size_t row = 0; row < 4; ++row) {
    const double circle = 2 * pi * 6371e3 * std::cos(info.coordinates[0][row] * pi / 180);
    expected += weights[row] / 4 * circle * 2;  // the mean of (2 cos)² is 2
  }
  EXPECT_NEAR(power[3] / expected, 1, 1e-6);
  EXPECT_NEAR(power[1] / expected, 0, 1e-6);
}

TEST(PowerSpectrum, RowsThatDoNotCloseLoseTheirSlope) {
  std::vector<float> slope;
  for (int i = 0; i < 20; ++i) slope.push_back(1 + 3 * static_cast<float>(i % 10));
  const auto open = spectrum_of(plain({2, 10}, "box"), slope);
  const auto closed = spectrum_of(plain({2, 10}, "periodic"), slope);
  EXPECT_NEAR(open[0], 14.5 * 14.5, 1e-9);
  EXPECT_NEAR(open[1], 0, 1e-9);
  EXPECT_GT(closed[1], 10);
}

TEST(PowerSpectrum, SphericalIsThatOfPlainSums) {
  for (const auto kind : {SphereGridKind::Equiangular, SphereGridKind::LegendreGauss}) {
    const SphereGrid grid = make_sphere_grid(kind, 10, 18);
    const auto field = random_field(180, 7, 0.5);
    const auto power = spectrum_of(whole_sphere(kind, 10, 18), field);
    const auto degrees = static_cast<std::int64_t>(power.size());
    ASSERT_EQ(degrees, std::min<std::int64_t>(exact_degrees(kind, 10), 9));
    for (std::int64_t degree = 0; degree < degrees; ++degree) {
      double expected = 0;
      for (std::int64_t order = -degree; order <= degree; ++order) {
        std::vector<double> legendre(static_cast<std::size_t>((degrees - std::abs(order)) * 10));
        fill_legendre_order(std::abs(order), degrees, grid.cosines, legendre.data());
        std::complex<double> sum = 0;
        for (std::size_t row = 0; row < 10; ++row) {
          for (std::size_t column = 0; column < 18; ++column) {
            const double longitude = 2 * pi * static_cast<double>(column) / 18;
            sum += grid.weights[row] * 2 * pi / 18 *
                   legendre[static_cast<std::size_t>(degree - std::abs(order)) * 10 + row] *
                   static_cast<double>(field[row * 18 + column]) *
                   std::polar(1.0, -static_cast<double>(order) * longitude);
          }
        }
        expected += std::norm(sum);
      }
      EXPECT_NEAR(power[static_cast<std::size_t>(degree)], expected, 1e-10 * (1 + expected));
    }
  }
}

TEST(PowerSpectrum, SphericalOfTwoHarmonicsFromEitherPole) {
  // 2 P̄_1^0 + 3 P̄_2^1 cos λ, with P̄_1^0 = √(3/4π) cos θ and P̄_2^1 = √(15/8π) sin θ cos θ.
  for (const bool upward : {false, true}) {
    const auto info = whole_sphere(SphereGridKind::LegendreGauss, 16, 32, upward);
    std::vector<float> field;
    for (const double latitude : info.coordinates[0]) {
      for (const double longitude : info.coordinates[1]) {
        const double up = std::sin(latitude * pi / 180);
        const double out = std::cos(latitude * pi / 180);
        field.push_back(static_cast<float>(2 * std::sqrt(3 / (4 * pi)) * up +
                                           3 * std::sqrt(15 / (8 * pi)) * out * up *
                                               std::cos(longitude * pi / 180)));
      }
    }
    const auto power = spectrum_of(info, field);
    for (std::size_t degree = 0; degree < power.size(); ++degree) {
      EXPECT_NEAR(power[degree], degree == 1 ? 4 : degree == 2 ? 4.5 : 0, 1e-5) << degree;
    }
  }
}

// --- the page ---

std::vector<int> bytes_of(const std::string& base64) {
  const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::vector<int> bytes;
  unsigned bits = 0;
  int held = 0;
  for (const char letter : base64) {
    if (letter == '=') break;
    bits = bits << 6U | static_cast<unsigned>(digits.find(letter));
    held += 6;
    if (held >= 8) {
      held -= 8;
      bytes.push_back(static_cast<int>(bits >> static_cast<unsigned>(held) & 255U));
    }
  }
  return bytes;
}

TEST(SkillPage, QuantisedValues) {
  EXPECT_EQ(quantised(std::vector<float>{0, 1, 0.5F}, 0, 1), "AP+A");
  for (const std::size_t count : {1U, 2U, 3U, 50U}) {
    const auto values = random_field(count, 11);
    const std::string text = quantised(values, -3, 3);
    EXPECT_EQ(text.size() % 4, 0U);
    const auto bytes = bytes_of(text);
    ASSERT_EQ(bytes.size(), count);
    for (std::size_t i = 0; i < count; ++i) {
      const double back = -3 + 6 * bytes[i] / 255.0;
      EXPECT_NEAR(back, std::clamp(static_cast<double>(values[i]), -3.0, 3.0), 3.0 / 255 + 1e-6);
    }
  }
  EXPECT_EQ(quantised(std::vector<float>{4, 4, 4}, 4, 4), "AAAA");
}

TEST(SkillPage, MeansOverBlocks) {
  const std::vector<float> field = {1, 3, 5, 5, 7, 9, 2, 4, 6};
  EXPECT_EQ(block_means(field, 3, 3, 2, 2), (std::vector<float>{4, 7, 3, 6}));
  EXPECT_EQ(block_means(field, 3, 3, 1, 1), field);
}

}  // namespace
}  // namespace garonne::train
