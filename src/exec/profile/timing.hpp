// How long a piece of work takes.
#pragma once

#include <functional>

namespace garonne::exec {

// Both repeat a piece of work: once to warm up, then at least five times, and while it is cheap
// more often until `enough_seconds` are over.

// Seconds of the shortest run, since what disturbs a run only makes it longer.
double shortest_seconds(double enough_seconds, const std::function<void()>& work);
// Seconds of the median run; `prepare` comes before each and is not counted.
double median_seconds(double enough_seconds, const std::function<void()>& prepare,
                      const std::function<void()>& work);

}  // namespace garonne::exec
