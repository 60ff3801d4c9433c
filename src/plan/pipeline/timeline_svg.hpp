// A simulated pipeline as a picture.
#pragma once

#include <string>

#include "plan/pipeline/schedule.hpp"
#include "plan/pipeline/simulation.hpp"

namespace garonne::plan {

// An SVG of its own: a lane for each device, an axis in seconds, peaks and a legend; pointing at an
// operation names it. It follows the viewer's light or dark scheme. Throws ConfigError for more
// operations than a viewer can show.
std::string timeline_svg(const PipelineSchedule& schedule, const PipelineOutcome& outcome);

}  // namespace garonne::plan
