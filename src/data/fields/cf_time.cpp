#include "data/fields/cf_time.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>

#include "base/lower_case.hpp"

namespace garonne::data {
namespace {

constexpr double day_seconds = 86400;
constexpr std::array<int, 12> month_lengths = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};

struct Date {
  std::int64_t year = 1970;
  int month = 1;
  int day = 1;
  auto operator<=>(const Date&) const = default;
};

constexpr Date gregorian_begin = {1582, 10, 15};

std::int64_t floor_divide(std::int64_t value, std::int64_t by) {
  return value / by - (value % by != 0 && (value < 0) != (by < 0) ? 1 : 0);
}

bool leap(std::int64_t year, Calendar calendar) {
  switch (calendar) {
    case Calendar::Days360:
    case Calendar::Days365:
      return false;
    case Calendar::Days366:
      return true;
    case Calendar::Julian:
      return year % 4 == 0;
    default:
      return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
  }
}

int month_length(std::int64_t year, int month, Calendar calendar) {
  if (calendar == Calendar::Days360) return 30;
  const int length = month_lengths[static_cast<std::size_t>(month - 1)];
  return length + (month == 2 && leap(year, calendar) ? 1 : 0);
}

// Days before 1 January of `year`, counted from year 0.
std::int64_t days_before(std::int64_t year, Calendar calendar) {
  const std::int64_t last = year - 1;
  switch (calendar) {
    case Calendar::Days360:
      return 360 * year;
    case Calendar::Days365:
      return 365 * year;
    case Calendar::Days366:
      return 366 * year;
    case Calendar::Julian:
      return 365 * year + floor_divide(last, 4);
    default:
      return 365 * year + floor_divide(last, 4) - floor_divide(last, 100) + floor_divide(last, 400);
  }
}

// Days from 1970-01-01 of the Gregorian calendar to that of the Julian one, which both of the
// standard calendar's parts count from the former.
constexpr std::int64_t julian_lag = 13;

// Days since 1970-01-01 of the calendar.
std::int64_t day_number(const Date& date, Calendar calendar) {
  if (calendar == Calendar::Standard) {
    return date < gregorian_begin ? day_number(date, Calendar::Julian) + julian_lag
                                  : day_number(date, Calendar::Gregorian);
  }
  std::int64_t days = days_before(date.year, calendar);
  for (int month = 1; month < date.month; ++month) days += month_length(date.year, month, calendar);
  return days + date.day - 1 - days_before(1970, calendar);
}

Date date_of(std::int64_t day, Calendar calendar) {
  if (calendar == Calendar::Standard) {
    return day >= day_number(gregorian_begin, Calendar::Gregorian)
               ? date_of(day, Calendar::Gregorian)
               : date_of(day - julian_lag, Calendar::Julian);
  }
  Date date;
  date.year = 1970 + floor_divide(day, 366);
  while (day_number({date.year + 1, 1, 1}, calendar) <= day) ++date.year;
  while (day_number({date.year, 1, 1}, calendar) > day) --date.year;
  std::int64_t rest = day - day_number({date.year, 1, 1}, calendar);
  date.month = 1;
  while (rest >= month_length(date.year, date.month, calendar)) {
    rest -= month_length(date.year, date.month++, calendar);
  }
  date.day = static_cast<int>(rest) + 1;
  return date;
}

// Seconds of a unit; 0 when unknown or without a fixed length.
double unit_seconds_of(const std::string& unit, Calendar calendar) {
  static const std::map<std::string, double> lengths = {{"seconds", 1},
                                                        {"second", 1},
                                                        {"secs", 1},
                                                        {"sec", 1},
                                                        {"s", 1},
                                                        {"minutes", 60},
                                                        {"minute", 60},
                                                        {"mins", 60},
                                                        {"min", 60},
                                                        {"hours", 3600},
                                                        {"hour", 3600},
                                                        {"hrs", 3600},
                                                        {"hr", 3600},
                                                        {"h", 3600},
                                                        {"days", day_seconds},
                                                        {"day", day_seconds},
                                                        {"d", day_seconds},
                                                        {"weeks", 7 * day_seconds},
                                                        {"week", 7 * day_seconds},
                                                        {"milliseconds", 1e-3},
                                                        {"microseconds", 1e-6}};
  const auto found = lengths.find(unit);
  if (found != lengths.end()) return found->second;
  if (calendar != Calendar::Days360) return 0;
  if (unit == "months" || unit == "month") return 30 * day_seconds;
  return unit == "years" || unit == "year" ? 360 * day_seconds : 0;
}

}  // namespace

std::optional<Calendar> calendar_named(const std::string& name) {
  static const std::map<std::string, Calendar> calendars = {
      {"standard", Calendar::Standard}, {"gregorian", Calendar::Standard},
      {"julian", Calendar::Julian},     {"proleptic_gregorian", Calendar::Gregorian},
      {"360_day", Calendar::Days360},   {"noleap", Calendar::Days365},
      {"365_day", Calendar::Days365},   {"all_leap", Calendar::Days366},
      {"366_day", Calendar::Days366}};
  const auto found = calendars.find(lower_case(name));
  if (found == calendars.end()) return std::nullopt;
  return found->second;
}

const char* calendar_name(Calendar calendar) {
  switch (calendar) {
    case Calendar::Standard:
      return "standard";
    case Calendar::Julian:
      return "julian";
    case Calendar::Days360:
      return "360_day";
    case Calendar::Days365:
      return "noleap";
    case Calendar::Days366:
      return "all_leap";
    default:
      return "proleptic_gregorian";
  }
}

bool is_cf_time(const std::string& units) {
  return lower_case(units).find(" since ") != std::string::npos;
}

std::optional<CfTime> parse_cf_time(const std::string& units, Calendar calendar) {
  const std::string text = lower_case(units);
  const std::size_t since = text.find(" since ");
  if (since == std::string::npos) return std::nullopt;
  std::string unit = text.substr(0, since);
  unit.erase(std::remove(unit.begin(), unit.end(), ' '), unit.end());
  CfTime time;
  time.calendar = calendar;
  time.unit_seconds = unit_seconds_of(unit, calendar);
  if (time.unit_seconds == 0) return std::nullopt;

  std::string rest = text.substr(since + 7);
  std::replace(rest.begin(), rest.end(), 't', ' ');
  long long year = 0;
  Date date;
  int used = 0;
  // So many digits that every number fits.
  if (std::sscanf(rest.c_str(), "%9lld-%9d-%9d%n", &year, &date.month, &date.day, &used) != 3) {
    return std::nullopt;
  }
  date.year = year;
  if (std::abs(year) > 1000000 || date.month < 1 || date.month > 12 || date.day < 1 ||
      date.day > month_length(year, date.month, calendar)) {
    return std::nullopt;
  }
  int hour = 0;
  int minute = 0;
  double second = 0;
  int zone_hour = 0;
  int zone_minute = 0;
  rest = rest.substr(static_cast<std::size_t>(used));
  const int clock =
      std::sscanf(rest.c_str(), " %9d:%9d%n:%lf%n", &hour, &minute, &used, &second, &used);
  if (hour < 0 || hour > 24 || minute < 0 || minute > 59 || !(second >= 0) || second >= 61) {
    return std::nullopt;
  }
  if (clock >= 2) {
    rest = rest.substr(static_cast<std::size_t>(used));
    // A zone "+2:00", "-06:30", "utc", "z".
    char sign = ' ';
    if (std::sscanf(rest.c_str(), " %c%9d:%9d", &sign, &zone_hour, &zone_minute) >= 2 &&
        (sign == '+' || sign == '-')) {
      if (zone_hour < 0 || zone_hour > 24 || zone_minute < 0 || zone_minute > 59) {
        return std::nullopt;
      }
      const int direction = sign == '-' ? -1 : 1;
      zone_hour *= direction;
      zone_minute *= direction;
    } else {
      zone_hour = zone_minute = 0;
    }
  }
  time.origin_seconds = static_cast<double>(day_number(date, calendar)) * day_seconds +
                        3600.0 * (hour - zone_hour) + 60.0 * (minute - zone_minute) + second;
  return time;
}

double date_seconds(std::int64_t year, int month, int day, Calendar calendar) {
  return static_cast<double>(day_number({year, month, day}, calendar)) * day_seconds;
}

int days_of_month(std::int64_t year, int month, Calendar calendar) {
  return month_length(year, month, calendar);
}

std::int64_t months_of_step(double seconds, Calendar calendar) {
  constexpr double month_days = 365.2425 / 12;
  constexpr double slack = 0.1;  // days, for what times were rounded to
  const double days = seconds / day_seconds;
  if (!(days > 27) || days > 1e6) return 0;
  const bool equal = calendar == Calendar::Days360;
  const std::int64_t months = std::llround(days / (equal ? 30 : month_days));
  const auto within = [&](double least, double greatest) {
    return days >= least - slack && days <= greatest + slack;
  };
  const auto count = static_cast<double>(months);
  if (months != 1 && months != 3 && (months == 0 || months % 12 != 0)) return 0;
  if (equal) return within(30 * count, 30 * count) ? months : 0;
  if (months == 1) return within(28, 31) ? 1 : 0;
  if (months == 3) return within(89, 92) ? 3 : 0;
  return within(365 * count / 12, 366 * count / 12) ? months : 0;
}

std::string months_text(std::int64_t months) {
  const bool years = months % 12 == 0;
  const std::int64_t count = years ? months / 12 : months;
  return fmt::format("{} {}{}", count, years ? "year" : "month", count == 1 ? "" : "s");
}

double time_after(double start, std::int64_t steps, double step_seconds, Calendar calendar) {
  const double plain = start + static_cast<double>(steps) * step_seconds;
  const std::int64_t whole = months_of_step(step_seconds, calendar);
  if (whole == 0 || calendar == Calendar::Days360 || !std::isfinite(start)) return plain;
  const auto day = static_cast<std::int64_t>(std::floor(start / day_seconds));
  const Date begin = date_of(day, calendar);
  const std::int64_t month = 12 * begin.year + begin.month - 1 + whole * steps;
  Date date;
  date.year = floor_divide(month, 12);
  date.month = static_cast<int>(month - 12 * date.year) + 1;
  date.day = std::min(begin.day, month_length(date.year, date.month, calendar));
  return static_cast<double>(day_number(date, calendar) - day) * day_seconds + start;
}

std::optional<double> parse_time(const std::string& text, Calendar calendar) {
  // As the origin of a unit of time, without a zone.
  if (text.find_first_not_of("0123456789-+:. T") != std::string::npos) return std::nullopt;
  int year = 0;
  int month = 0;
  int day = 0;
  int hour = 0;
  int minute = 0;
  double second = 0;
  int used = 0;
  if (std::sscanf(text.c_str(), "%9d-%2d-%2d%n", &year, &month, &day, &used) != 3) {
    return std::nullopt;
  }
  const std::string clock = text.substr(static_cast<std::size_t>(used));
  if (!clock.empty()) {
    int minutes = 0;
    int seconds = 0;
    const int read = std::sscanf(clock.c_str(), "%*[T ]%2d:%2d%n:%lf%n", &hour, &minute, &minutes,
                                 &second, &seconds);
    if (read < 2 || std::max(minutes, seconds) != static_cast<int>(clock.size())) {
      return std::nullopt;
    }
  }
  if (std::abs(year) > 1000000 || month < 1 || month > 12 || day < 1 ||
      day > month_length(year, month, calendar) || hour < 0 || hour > 23 || minute < 0 ||
      minute > 59 || !(second >= 0) || second >= 61) {
    return std::nullopt;
  }
  return date_seconds(year, month, day, calendar) + 3600.0 * hour + 60.0 * minute + second;
}

std::string format_time(double seconds, Calendar calendar) {
  if (!std::isfinite(seconds) || std::abs(seconds) > 1e14) return "?";
  const auto minutes = static_cast<std::int64_t>(std::llround(seconds / 60));
  const std::int64_t day = floor_divide(minutes, 1440);
  const Date date = date_of(day, calendar);
  const std::int64_t rest = minutes - 1440 * day;
  return fmt::format("{:04}-{:02}-{:02} {:02}:{:02}", date.year, date.month, date.day, rest / 60,
                     rest % 60);
}

}  // namespace garonne::data
