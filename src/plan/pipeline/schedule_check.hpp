// Whether a pipeline schedule computes every gradient once and can be run. Knows no makers.
#pragma once

#include <optional>
#include <string>

#include "plan/pipeline/schedule.hpp"

namespace garonne::plan {

// The first thing that is wrong with a schedule.
struct ScheduleFault {
  int device = -1;    // -1: the schedule as a whole
  int position = -1;  // in the device's order; -1 for an operation that is missing
  PipelineOperation operation;
  std::string reason;
};

// "device 2, operation 7 (backward of chunk 0, micro-batch 3): comes before its forward".
std::string describe(const ScheduleFault& fault);

// Every chunk on a micro-batch's route runs its forward once and then its backward once, whole or
// in its two halves, input before weights; a chunk that recomputes does so once between them,
// others never; and the devices, each in its order and each waiting for what it needs, come to an
// end, also where operations that overlap start together.
std::optional<ScheduleFault> find_fault(const PipelineSchedule& schedule);

}  // namespace garonne::plan
