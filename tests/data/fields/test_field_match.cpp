// Whether fields of one dataset can stand where those of another do.
#include "data/fields/field_match.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.hpp"
#include "data/fields/channel_units.hpp"

namespace garonne::data {
namespace {

FieldTraits traits(std::vector<std::vector<double>> coordinates, std::vector<std::string> units) {
  return {"one.nc",
          {"latitude", "longitude"},
          std::move(coordinates),
          {"t2m", "u10"},
          std::move(units)};
}

TEST(FieldMatch, CoordinatesAreAlikeWithinAHundredthOfTheirStep) {
  const FieldTraits one = traits({{90, 0, -90}, {0, 180}}, {"K", "m s-1"});
  EXPECT_EQ(difference_of(one, one), "");
  EXPECT_EQ(difference_of(traits({{90, 0.8, -90}, {0, 180}}, {}), one), "");
  EXPECT_EQ(difference_of(traits({{90, 1.0, -90}, {0, 180}}, {}), one),
            "has another grid: latitude number 1 is 1, and 0 in one.nc (90 to -90 against 90 to "
            "-90)");
  EXPECT_NE(
      difference_of(traits({{-90, 0, 90}, {0, 180}}, {}), one).find("number 0 is -90, and 90"),
      std::string::npos);
  EXPECT_NE(difference_of(traits({{90, 0, -90}, {-180, 0}}, {}), one).find("longitude number 0"),
            std::string::npos);
  // Where nobody says, or of other lengths, nothing is said.
  EXPECT_EQ(difference_of(traits({}, {}), one), "");
  EXPECT_EQ(difference_of(one, traits({}, {})), "");
  EXPECT_EQ(difference_of(traits({{}, {-180, 0, 180}}, {}), one), "");
}

TEST(FieldMatch, UnitsAreThoseOfTheSameChannel) {
  const FieldTraits one = traits({}, {"K", "m s-1"});
  EXPECT_EQ(difference_of(traits({}, {"", "m/s"}), one), "");
  EXPECT_EQ(difference_of(traits({}, {"degC", "m s-1"}), one), "has t2m in degC, and K in one.nc");
  FieldTraits turned = traits({}, {"m s**-1", "kelvin"});
  turned.channels = {"u10", "t2m"};
  EXPECT_EQ(difference_of(turned, one), "");
  turned.channels = {"t2m", "u10"};
  EXPECT_NE(difference_of(turned, one), "");
  turned.channels = {"v10", "q"};
  EXPECT_EQ(difference_of(turned, one), "");
}

TEST(FieldMatch, UnitsByWhatTheyMean) {
  const std::vector<std::vector<std::string>> alike = {
      {"m s-1", "m/s", "m s**-1", "m s^-1", "m*s-1", "m.s-1", "meter second-1"},
      {"K", "kelvin", "degK", "Kelvin"},
      {"degC", "°C", "degree_Celsius", "celsius", "C"},
      {"m2 s-2", "m**2 s**-2", "m2/s2", "m^2 s^-2", "m+2 s-2"},
      {"kg kg-1", "1", "kg/kg", "(0 - 1)", "dimensionless"},
      {"kg m-2 s-1", "kg/m2/s", "kg m**-2 s**-1"},
      {"hPa", "mbar", "millibar"},
      {"Pa"},
      {"%"},
      {"10-2 kg", "10-2 kg1"},
      {"kg"},
      {"m"},
      {"s-1"},
      {"s"},
      {"-"},
      {"days since 1970-01-01"}};
  for (std::size_t one = 0; one < alike.size(); ++one) {
    for (std::size_t other = 0; other < alike.size(); ++other) {
      for (const std::string& a : alike[one]) {
        for (const std::string& b : alike[other])
          EXPECT_EQ(same_units(a, b), one == other) << a << " and " << b;
      }
    }
    for (const std::string& a : alike[one]) EXPECT_TRUE(same_units(a, "") && same_units("", a));
  }
}

TEST(FieldMatch, DatasetsAreComparedAsAWhole) {
  FieldDatasetInfo one;
  one.path = "one";
  one.points = {2, 2};
  one.axes = {"y", "x"};
  one.coordinates = {{0, 1}, {0, 1}};
  one.input_channels = {"a", "orography"};
  one.input_units = {"", "m"};
  one.target_channels = {"a", "b"};
  one.target_units = {"", "Pa"};
  expect_same_fields("data.validation", one, one);
  const auto refusal = [&](const auto& change) {
    FieldDatasetInfo other = one;
    other.path = "other";
    change(other);
    try {
      expect_same_fields("data.validation", other, one);
    } catch (const ConfigError& error) {
      EXPECT_EQ(error.key() + error.value(), "data.validationother");
      return error.reason();
    }
    return std::string("none");
  };
  const auto has = [](const std::string& reason, const char* word) {
    EXPECT_NE(reason.find(word), std::string::npos) << reason;
  };
  has(refusal([](auto& other) { other.points = {2, 3}; }), "2 x 3 points");
  has(refusal([](auto& other) { other.target_channels = {"b", "a"}; }), "to b, a");
  has(refusal([](auto& other) { other.coordinates[1] = {1, 2}; }), "x number 0 is 1, and 0 in one");
  has(refusal([](auto& other) { other.input_units[1] = "km"; }), "orography in km, and m in one");
  has(refusal([](auto& other) { other.target_units[1] = "hPa"; }), "has b in hPa, and Pa in one");
  has(refusal([](auto& other) { other.coordinates.clear(); }), "none");
}

}  // namespace
}  // namespace garonne::data
