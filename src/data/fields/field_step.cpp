#include "data/fields/field_step.hpp"

#include <fmt/format.h>

#include <cmath>

#include "data/fields/field_dataset.hpp"

namespace garonne::data {

std::int64_t FieldStep::months() const {
  return in_seconds && calendar ? months_of_step(length, *calendar) : 0;
}

double FieldStep::seconds_in(Calendar other) const {
  if (!known() || !in_seconds) return 0;
  const std::int64_t whole = months();
  if (whole == 0 || months_of_step(length, other) == whole) return length;
  const double month_days = other == Calendar::Days360 ? 30 : 365.2425 / 12;
  return static_cast<double>(whole) * month_days * 86400;
}

FieldStep step_of(const FieldDatasetInfo& info) {
  FieldStep step;
  if (info.pairs) return step;
  step.length = info.frame_seconds;
  step.in_seconds = info.in_seconds;
  if (info.has_times) step.calendar = info.calendar;
  return step;
}

bool same_step(const FieldStep& one, const FieldStep& other) {
  if (!one.known() || !other.known() || one.in_seconds != other.in_seconds) return true;
  if (std::abs(one.length - other.length) <= 1e-3 * other.length) return true;
  return one.months() > 0 && one.months() == other.months();
}

std::string to_text(const FieldStep& step) {
  const double length = step.length;
  if (!step.known()) return "unknown steps";
  if (!step.in_seconds) return fmt::format("steps of {:g} (no unit of time in the files)", length);
  if (step.months() > 0) return "steps of " + months_text(step.months());
  if (length >= 2 * 86400) return fmt::format("steps of {:g} days", std::round(length / 864) / 100);
  if (length >= 3600) return fmt::format("steps of {:g} h", length / 3600);
  return fmt::format("steps of {:g} s", length);
}

}  // namespace garonne::data
