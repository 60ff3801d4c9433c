// How long a piece of work takes.
#pragma once

#include <functional>

#include "device/device.hpp"

namespace garonne::exec {

// What a piece of work takes where it is computed, and the host's time to put it there; 0 where the
// host computes.
struct WorkSeconds {
  double seconds = 0;
  double issue_seconds = 0;
};

// What a piece of work takes, which it carries out once.
using Stopwatch = std::function<WorkSeconds(const std::function<void()>& work)>;
// By the host's clock.
WorkSeconds host_seconds(const std::function<void()>& work);
// On Compute of a device, which begins once the host has put all of the work there: the time of the
// device alone, also where the host takes longer to put a kernel there than the device to run it.
// The lane is no thread of the host's, and the device outlives the stopwatch.
Stopwatch stopwatch_of(device::Device& device);

// Both repeat a piece of work: once to warm up, then at least five times, and while it is cheap
// more often until `enough_seconds` are over.

// The shortest of each, since what disturbs a run only makes it longer.
WorkSeconds shortest_seconds(double enough_seconds, const std::function<void()>& work,
                             const Stopwatch& stopwatch = host_seconds);
// The median of each; `prepare` comes before each run and is not counted.
WorkSeconds median_seconds(double enough_seconds, const std::function<void()>& prepare,
                           const std::function<void()>& work,
                           const Stopwatch& stopwatch = host_seconds);

}  // namespace garonne::exec
