// How far apart in time the frames of a dataset are. A model moves a state on by the step of what
// it was trained on; frames of another step are no truth of its forecasts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "data/fields/cf_time.hpp"

namespace garonne::data {

struct FieldDatasetInfo;

struct FieldStep {
  double length = 0;                 // from a frame to the next; 0 = nobody says
  bool in_seconds = false;           // else of a unit that the files do not say
  std::optional<Calendar> calendar;  // of the dates of the frames, where they have dates

  bool known() const { return length > 0; }
  // Whole calendar months that it is (months_of_step); 0 for all others.
  std::int64_t months() const;
  // Seconds of it, or of a usual one where it is of months, in another calendar; 0 where it is not
  // known in seconds.
  double seconds_in(Calendar other) const;
};

FieldStep step_of(const FieldDatasetInfo& info);

// Alike within a thousandth, or as many months; true where nobody says, or in which unit.
bool same_step(const FieldStep& one, const FieldStep& other);

// "steps of 6 h", "steps of 1 month", "unknown steps".
std::string to_text(const FieldStep& step);

}  // namespace garonne::data
