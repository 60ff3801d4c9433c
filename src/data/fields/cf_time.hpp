// Times as climate files write them: "hours since 1970-01-01 00:00:00" in one of several calendars
// (CF Conventions 1.11, section 4.4).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace garonne::data {

// CF's calendars, by length of year: 360 days, 365, 366; Standard is Gregorian with Julian dates
// before 1582-10-15, Gregorian is Gregorian throughout.
enum class Calendar { Standard, Gregorian, Julian, Days360, Days365, Days366 };

// By its name in the attribute `calendar` ("360_day", "noleap", …); empty when unknown.
std::optional<Calendar> calendar_named(const std::string& name);

// The name that calendar_named knows it by.
const char* calendar_name(Calendar calendar);

// What a stored time means: seconds since 1970-01-01 00:00 of `calendar` are
// stored · unit_seconds + origin_seconds.
struct CfTime {
  Calendar calendar = Calendar::Gregorian;
  double unit_seconds = 1;
  double origin_seconds = 0;
};

// Whether `units` has the form of a time ("… since …").
bool is_cf_time(const std::string& units);

// Reads `units` of the form "<unit> since <date>[ <time>[ <zone>]]"; unit is of seconds to weeks,
// and in the calendar of 360 days also months and years, which have no fixed length elsewhere.
// Empty when it cannot be read or means nothing definite.
std::optional<CfTime> parse_cf_time(const std::string& units, Calendar calendar);

// Seconds since 1970-01-01 00:00 of that calendar at the beginning of a day; month 1 to 12, day
// from 1 on.
double date_seconds(std::int64_t year, int month, int day, Calendar calendar);
int days_of_month(std::int64_t year, int month, Calendar calendar);

// Whole months of the calendar that a step in time is: 1, 3 (a quarter), or 12, 24, … (years),
// which may differ in their days; 0 for all others.
std::int64_t months_of_step(double seconds, Calendar calendar);

// "1 month", "5 years", of whole months.
std::string months_text(std::int64_t months);

// Seconds of the time `steps` steps after `start`. A step is `step_seconds` long, or, where that is
// of months_of_step in a calendar in which those differ, as many whole months, so that dates stay
// dates.
double time_after(double start, std::int64_t steps, double step_seconds, Calendar calendar);

// Reads "1979-01-01", "1979-01-01 06:00", with a T between them, or with seconds. Empty where it is
// no time of that calendar.
std::optional<double> parse_time(const std::string& text, Calendar calendar);

// The `units` of seconds since 1970 of any calendar.
inline constexpr const char* seconds_units = "seconds since 1970-01-01 00:00:00";

// "1979-01-01 06:00", of seconds since 1970-01-01 00:00 of that calendar.
std::string format_time(double seconds, Calendar calendar);

}  // namespace garonne::data
