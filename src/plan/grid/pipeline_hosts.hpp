// Estimates of pipelines whose hosts wait for messages between stages (plan/model/software.hpp), as
// the replay of their Programs has them (HostIssue::Waits).
#pragma once

#include "plan/pipeline/simulation.hpp"

namespace garonne::plan {

// What the host takes to issue the passes of a chunk for one micro-batch, in seconds.
struct PassIssue {
  double forward = 0;
  double backward = 0;  // of weights, too
};

// The host begins with a pass when the message has come that the pass begins with, so that the pass
// takes no less than it does; `again` is for what runs a second time before the backward.
void wait_for_host(const PassIssue& issue, double again, PhaseSeconds& chunk);

// Devices compute nothing while what they have made is on its way to the next: a hop is part of the
// pass before it.
void send_before_going_on(const PipelineSchedule& schedule, PipelineCosts& costs);

}  // namespace garonne::plan
