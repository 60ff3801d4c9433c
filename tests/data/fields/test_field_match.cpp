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
  return {"one.nc",       {"latitude", "longitude"}, std::move(coordinates),
          {"t2m", "u10"}, std::move(units),          {}};
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

TEST(FieldMatch, StepsAreAlikeByLengthOrInMonths) {
  const auto days = [](double length, Calendar calendar = Calendar::Gregorian) {
    return FieldStep{86400 * length, true, calendar};
  };
  const FieldStep undated{86400, true, std::nullopt};
  const FieldStep unknown{0, true, Calendar::Gregorian};
  const FieldStep unit_less{6, false, std::nullopt};
  EXPECT_TRUE(same_step(days(1), days(1.0005)));
  EXPECT_TRUE(same_step(days(1), days(1, Calendar::Days360)));
  EXPECT_TRUE(same_step(days(1), undated));
  EXPECT_FALSE(same_step(days(1), days(0.25)));
  EXPECT_FALSE(same_step(undated, days(0.25)));
  EXPECT_FALSE(same_step(days(30, Calendar::Days365), days(2)));
  // Months, quarters and years.
  EXPECT_TRUE(same_step(days(31), days(28)));
  EXPECT_TRUE(same_step(days(31), days(30, Calendar::Days360)));
  EXPECT_TRUE(same_step(days(366), days(360, Calendar::Days360)));
  EXPECT_FALSE(same_step(days(31), days(91)));
  EXPECT_FALSE(same_step(days(31), days(366)));
  // Where nobody says, or not in which unit.
  for (const FieldStep& other : {unknown, unit_less, FieldStep()}) {
    EXPECT_TRUE(same_step(days(1), other));
    EXPECT_TRUE(same_step(other, days(1)));
  }
  EXPECT_FALSE(same_step(unit_less, {1, false, std::nullopt}));

  EXPECT_EQ(days(31).seconds_in(Calendar::Days360), 30 * 86400.0);
  EXPECT_EQ(months_of_step(days(360, Calendar::Days360).seconds_in(Calendar::Standard),
                           Calendar::Standard),
            12);
  EXPECT_EQ(days(0.25).seconds_in(Calendar::Days360), 21600);
  EXPECT_EQ(unit_less.seconds_in(Calendar::Days360), 0);
  EXPECT_EQ(to_text(days(0.25)), "steps of 6 h");
  EXPECT_EQ(to_text(days(31)), "steps of 1 month");
  EXPECT_EQ(to_text(unknown), "unknown steps");
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
  one.in_seconds = one.has_times = true;
  one.frame_seconds = 86400;
  has(refusal([](auto& other) { other.frame_seconds = 21600; }),
      "has steps of 6 h, and one has steps of 24 h; what a model");
  has(refusal([](auto& other) { other.frame_seconds = 0; }), "none");
  FieldDatasetInfo states = one;
  states.frame_seconds = 60 * 86400;
  expect_same_fields("--data", states, one, FramesAre::States);
}

}  // namespace
}  // namespace garonne::data
