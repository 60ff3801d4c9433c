#include <gtest/gtest.h>

#include <cmath>

#include "data/fields/cf_time.hpp"

namespace garonne::data {
namespace {

struct Case {
  const char* units;
  const char* calendar;
  double value;
  const char* date;
};

// Dates made by cftime 1.6: num2date(value, units, calendar).strftime("%Y-%m-%d %H:%M").
TEST(CfTime, DatesAreThoseOfCftime) {
  for (const Case& one : {
           Case{"hours since 1970-01-01 00:00:00", "360_day", -946800, "1860-06-01 00:00"},
           Case{"hours since 1970-01-01 00:00:00", "gregorian", 318096, "2006-04-16 00:00"},
           Case{"days since 0001-01-01", "standard", 735599.25, "2014-12-31 06:00"},
           Case{"days since 0001-01-01", "proleptic_gregorian", 735599.25, "2015-01-02 06:00"},
           Case{"days since 1850-01-01", "noleap", 40000.5, "1959-08-04 12:00"},
           Case{"seconds since 2000-02-28 12:00:00 +02:00", "standard", 172800, "2000-03-01 10:00"},
           Case{"seconds since 2000-02-28 12:00:00 -06:30", "standard", 0, "2000-02-28 18:30"},
           Case{"minutes since 1582-10-04 23:00", "standard", 120, "1582-10-15 01:00"},
           Case{"days since 2000-1-1T06:00:00Z", "366_day", 400, "2001-02-04 06:00"},
           Case{"days since 1500-03-01", "julian", -1, "1500-02-29 00:00"},
           Case{"months since 2001-02-01", "360_day", 13, "2002-03-01 00:00"},
       }) {
    const auto calendar = calendar_named(one.calendar);
    ASSERT_TRUE(calendar) << one.calendar;
    const auto time = parse_cf_time(one.units, *calendar);
    ASSERT_TRUE(time) << one.units;
    EXPECT_EQ(format_time(one.value * time->unit_seconds + time->origin_seconds, *calendar),
              one.date)
        << one.units << " " << one.calendar;
  }
}

// Seconds are those of cftime, too: date2num(…, "seconds since 1970-01-01", calendar), so that what
// is written with `seconds_units` has the same dates for its readers.
TEST(CfTime, EveryCalendarCountsFromItsOwn1970) {
  for (const Calendar calendar : {Calendar::Standard, Calendar::Gregorian, Calendar::Julian,
                                  Calendar::Days360, Calendar::Days365, Calendar::Days366}) {
    const auto time = parse_cf_time(seconds_units, calendar);
    ASSERT_TRUE(time);
    EXPECT_EQ(time->origin_seconds, 0) << calendar_name(calendar);
    EXPECT_EQ(date_seconds(1970, 1, 1, calendar), 0) << calendar_name(calendar);
    EXPECT_EQ(format_time(0, calendar), "1970-01-01 00:00") << calendar_name(calendar);
  }
  EXPECT_EQ(date_seconds(2000, 2, 20, Calendar::Julian), 951004800);
  EXPECT_EQ(date_seconds(1850, 1, 1, Calendar::Julian), -3786912000);
  EXPECT_EQ(date_seconds(1500, 3, 1, Calendar::Standard), -14825808000);
  EXPECT_EQ(date_seconds(1582, 10, 15, Calendar::Standard) -
                date_seconds(1582, 10, 4, Calendar::Standard),
            86400);
}

TEST(CfTime, WhatMeansNothingDefiniteIsNotRead) {
  for (const char* units :
       {"months since 2001-01-01", "days since yesterday", "days", "furlongs since 2001-01-01",
        "days since 2001-13-01", "days since 2001-02-30", "days since 4294969297-01-01",
        "days since 2001-01-01 25:00", "days since 2001-01-01 12:60",
        "days since 2001-01-01 2147483647:00 -2147483648:00", "days since 2001-01-01 00:00:1e400",
        "days since 2001-01-01 00:00:nan", "days since 2001-01-01 00:00 +99:00"}) {
    EXPECT_FALSE(parse_cf_time(units, Calendar::Standard)) << units;
  }
  EXPECT_FALSE(calendar_named("martian"));
  EXPECT_TRUE(is_cf_time("days since 2001-01-01"));
  EXPECT_FALSE(is_cf_time("days"));
}

// Every day of each calendar has another date, and the next day the next one.
TEST(CfTime, DaysFollowEachOther) {
  for (const Calendar calendar : {Calendar::Standard, Calendar::Gregorian, Calendar::Julian,
                                  Calendar::Days360, Calendar::Days365, Calendar::Days366}) {
    std::string before;
    for (double day = -150000; day < 20000; day += 1) {
      const std::string date = format_time(day * 86400, calendar);
      ASSERT_LT(before, date) << day;
      before = date;
    }
  }
}

// Dates as cftime makes them.
TEST(CfTime, MonthsAndYearsStayMonthsAndYears) {
  constexpr double day = 86400;
  const auto after = [](const char* start, std::int64_t steps, double days, Calendar calendar) {
    return format_time(time_after(*parse_time(start, calendar), steps, days * day, calendar),
                       calendar);
  };
  EXPECT_EQ(after("2010-06-01", 1, 360, Calendar::Days360), "2011-06-01 00:00");
  EXPECT_EQ(after("2010-02-30", 2, 30, Calendar::Days360), "2010-04-30 00:00");
  EXPECT_EQ(after("2010-06-01", 4, 365, Calendar::Gregorian), "2014-06-01 00:00");
  EXPECT_EQ(after("2012-02-29", 1, 365.25, Calendar::Standard), "2013-02-28 00:00");
  EXPECT_EQ(after("2000-01-16T12:00", 13, 30.4, Calendar::Standard), "2001-02-16 12:00");
  EXPECT_EQ(after("2000-01-31", 1, 31, Calendar::Days365), "2000-02-28 00:00");
  EXPECT_EQ(after("1999-12-31 18:00", 1, 0.25, Calendar::Gregorian), "2000-01-01 00:00");
  EXPECT_EQ(after("2000-01-01", 3, 10, Calendar::Gregorian), "2000-01-31 00:00");
}

TEST(CfTime, StepsOfWholeMonths) {
  const auto months = [](double days, Calendar calendar = Calendar::Standard) {
    return months_of_step(days * 86400, calendar);
  };
  for (const double days : {28.0, 29.5, 31.0}) EXPECT_EQ(months(days), 1) << days;
  for (const double days : {89.0, 90.0, 92.0}) EXPECT_EQ(months(days), 3) << days;
  for (const double days : {365.0, 365.5, 366.0}) EXPECT_EQ(months(days), 12) << days;
  EXPECT_EQ(months(3652), 120);
  for (const double days : {0.25, 1.0, 7.0, 27.0, 33.0, 60.0, 87.0, 94.0, 360.0, 370.0, 1e300})
    EXPECT_EQ(months(days), 0) << days;
  EXPECT_EQ(months(std::nan("")), 0);
  EXPECT_EQ(months(-30), 0);
  EXPECT_EQ(months(30, Calendar::Days360), 1);
  EXPECT_EQ(months(90, Calendar::Days360), 3);
  EXPECT_EQ(months(360, Calendar::Days360), 12);
  EXPECT_EQ(months(92, Calendar::Days360), 0);
  EXPECT_EQ(months_text(1), "1 month");
  EXPECT_EQ(months_text(3), "3 months");
  EXPECT_EQ(months_text(12), "1 year");
  EXPECT_EQ(months_text(26), "26 months");
  EXPECT_EQ(months_text(120), "10 years");
  // Quarters stay quarters.
  EXPECT_EQ(format_time(time_after(*parse_time("1999-12-01", Calendar::Standard), 5, 91 * 86400,
                                   Calendar::Standard),
                        Calendar::Standard),
            "2001-03-01 00:00");
}

TEST(CfTime, PeopleWriteTimes) {
  const auto read = [](const char* text, Calendar calendar) {
    const auto seconds = parse_time(text, calendar);
    return seconds ? format_time(*seconds, calendar) : "none";
  };
  EXPECT_EQ(read("1979-01-02", Calendar::Gregorian), "1979-01-02 00:00");
  EXPECT_EQ(read("1979-01-02T06:30", Calendar::Gregorian), "1979-01-02 06:30");
  EXPECT_EQ(read("1979-01-02 06:30:30", Calendar::Gregorian), "1979-01-02 06:31");
  EXPECT_EQ(read("2001-02-30", Calendar::Days360), "2001-02-30 00:00");
  for (const char* text : {"", "1979", "1979-01", "2001-02-30", "1979-13-01", "1979-01-02T",
                           "1979-01-02 24:00", "1979-01-02 06:30 UTC", "1979-01-02x", "last"}) {
    EXPECT_EQ(read(text, Calendar::Gregorian), "none") << text;
  }
  for (const char* name :
       {"standard", "proleptic_gregorian", "julian", "360_day", "noleap", "all_leap"}) {
    EXPECT_STREQ(calendar_name(*calendar_named(name)), name);
  }
}

}  // namespace
}  // namespace garonne::data
