// A part of the time that files of fields cover: "1860/1999", "2000-03/2010-02-15", "2000/".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "data/fields/cf_time.hpp"

namespace garonne::data {

// Two dates, of which either may be left out, with a slash between them (ISO 8601, section 5.5.1).
// A date is YYYY, YYYY-MM or YYYY-MM-DD and stands for the whole of that year, month or day, so
// that both ends are included.
class FieldPeriod {
 public:
  FieldPeriod() = default;  // all times, those of files without dates too

  // Empty text = all times. Throws ConfigError with `key` for any other that is no period, or whose
  // end is before its beginning.
  static FieldPeriod parse(const std::string& key, const std::string& text);

  bool everything() const { return !first_ && !last_; }
  const std::string& key() const { return key_; }
  const std::string& text() const { return text_; }

  // [first, second) in seconds since 1970 of the calendar; infinite where an end is left out.
  // Throws ConfigError for a day that the calendar does not have.
  std::pair<double, double> bounds(Calendar calendar) const;

 private:
  struct Date {
    std::int64_t year = 0;
    int month = 0;  // 0 = the whole year
    int day = 0;    // 0 = the whole month
  };
  static std::optional<Date> parse_date(const std::string& text);
  [[noreturn]] void refuse(const std::string& reason) const;

  std::string key_;
  std::string text_;
  std::optional<Date> first_;
  std::optional<Date> last_;
};

}  // namespace garonne::data
