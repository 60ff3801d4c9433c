// What communication takes from what computes on the same processors, measured.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "dist/communication_thread.hpp"
#include "dist/session.hpp"

namespace garonne::train {

// Processor seconds a byte that a rank sends: how much longer products take while all-reduces of
// float32 over the members go on beside them, which alone are done in `seconds_alone` each. At
// least 0; the most of the members. In a ComputeSession. Collective over all ranks of the session;
// the result is on all of them.
double communication_seconds_per_byte(dist::Session& session, dist::CommunicationThread& thread,
                                      std::string_view transport, const std::vector<int>& members,
                                      std::int64_t bytes, double seconds_alone);

}  // namespace garonne::train
