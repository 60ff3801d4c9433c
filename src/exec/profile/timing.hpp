// How long a piece of work takes.
#pragma once

#include <functional>

#include "device/device.hpp"

namespace garonne::exec {

// Seconds that a piece of work takes, which it carries out once.
using Stopwatch = std::function<double(const std::function<void()>& work)>;
// By the host's clock.
double host_seconds(const std::function<void()>& work);
// On Compute of a device, from where that comes to the work to where it has done it. Where the host
// takes longer to put the work there, that is what it takes. The device outlives the stopwatch.
Stopwatch stopwatch_of(device::Device& device);

// Both repeat a piece of work: once to warm up, then at least five times, and while it is cheap
// more often until `enough_seconds` are over.

// Seconds of the shortest run, since what disturbs a run only makes it longer.
double shortest_seconds(double enough_seconds, const std::function<void()>& work,
                        const Stopwatch& stopwatch = host_seconds);
// Seconds of the median run; `prepare` comes before each and is not counted.
double median_seconds(double enough_seconds, const std::function<void()>& prepare,
                      const std::function<void()>& work, const Stopwatch& stopwatch = host_seconds);

}  // namespace garonne::exec
