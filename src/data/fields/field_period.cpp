#include "data/fields/field_period.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <tuple>

#include "base/error.hpp"

namespace garonne::data {

void FieldPeriod::refuse(const std::string& reason) const {
  throw ConfigError(
      key_, text_,
      reason + "; a period is two dates with a slash between them, YYYY[-MM[-DD]], as 1860/1999");
}

std::optional<FieldPeriod::Date> FieldPeriod::parse_date(const std::string& text) {
  Date date;
  int year = 0;
  int used = 0;
  const auto whole = [&] { return used == static_cast<int>(text.size()); };
  // Widths, so that 200001 is no year.
  if (std::sscanf(text.c_str(), "%4d%n", &year, &used) != 1 || text[0] == '-' || text[0] == '+') {
    return std::nullopt;
  }
  date.year = year;
  if (whole()) return date;
  if (std::sscanf(text.c_str(), "%4d-%2d%n", &year, &date.month, &used) != 2 || date.month < 1 ||
      date.month > 12) {
    return std::nullopt;
  }
  if (whole()) return date;
  if (std::sscanf(text.c_str(), "%4d-%2d-%2d%n", &year, &date.month, &date.day, &used) != 3 ||
      date.day < 1 || date.day > 31 || !whole()) {
    return std::nullopt;
  }
  return date;
}

FieldPeriod FieldPeriod::parse(const std::string& key, const std::string& text) {
  FieldPeriod period;
  period.key_ = key;
  period.text_ = text;
  if (text.empty()) return period;
  const std::size_t slash = text.find('/');
  if (slash == std::string::npos) period.refuse("has no slash");
  const std::string first = text.substr(0, slash);
  const std::string last = text.substr(slash + 1);
  if (first.empty() && last.empty()) period.refuse("names no date");
  for (const auto& [part, date] : {std::pair(&first, &period.first_), {&last, &period.last_}}) {
    if (part->empty()) continue;
    *date = parse_date(*part);
    if (!*date) period.refuse(fmt::format("\"{}\" is no date", *part));
  }
  if (!period.first_ || !period.last_) return period;
  // Which date is the earlier does not depend on a calendar.
  const auto& begin = *period.first_;
  const auto& end = *period.last_;
  if (std::tuple(end.year, end.month == 0 ? 12 : end.month, end.day == 0 ? 31 : end.day) <
      std::tuple(begin.year, std::max(begin.month, 1), std::max(begin.day, 1))) {
    period.refuse("ends before it begins");
  }
  return period;
}

std::pair<double, double> FieldPeriod::bounds(Calendar calendar) const {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const auto check = [&](const Date& date) {
    if (date.day > days_of_month(date.year, date.month == 0 ? 1 : date.month, calendar)) {
      refuse(fmt::format("the calendar of the data has no {:04}-{:02}-{:02}", date.year, date.month,
                         date.day));
    }
  };
  std::pair<double, double> bounds(-infinity, infinity);
  if (first_) {
    check(*first_);
    bounds.first =
        date_seconds(first_->year, std::max(first_->month, 1), std::max(first_->day, 1), calendar);
  }
  if (last_) {
    check(*last_);
    const Date& date = *last_;
    if (date.day > 0) {
      bounds.second = date_seconds(date.year, date.month, date.day, calendar) + 86400;
    } else if (date.month > 0 && date.month < 12) {
      bounds.second = date_seconds(date.year, date.month + 1, 1, calendar);
    } else {
      bounds.second = date_seconds(date.year + 1, 1, 1, calendar);
    }
  }
  return bounds;
}

}  // namespace garonne::data
