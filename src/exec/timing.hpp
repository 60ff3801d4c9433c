// How long a piece of work takes at its best.
#pragma once

#include <functional>

namespace garonne::exec {

// Seconds of the shortest of repeated runs, since what disturbs a run only makes it longer: one to
// warm up, then at least five, and while they are cheap more until they have taken
// `enough_seconds` together. `prepare` comes before each and is not counted.
double shortest_seconds(double enough_seconds, const std::function<void()>& prepare,
                        const std::function<void()>& work);
double shortest_seconds(double enough_seconds, const std::function<void()>& work);

}  // namespace garonne::exec
