// The cores that a process may run on.
#pragma once

#include <string>
#include <vector>

namespace garonne {

// Those that the launcher or the control group left to the calling thread, ascending; empty where
// that is not known.
std::vector<int> cores_of_this_process();

// "0-3,8", as the system writes them, of ascending numbers.
std::string core_list_text(const std::vector<int>& cores);

// What the control groups of this process let it and all others in them use at a time
// (cpu.max of each group above it), in cores; 0 = no limit, or not known. `proc` and
// `control_groups`: where the system says so.
double core_quota_of_this_process(const std::string& proc = "/proc",
                                  const std::string& control_groups = "/sys/fs/cgroup");

}  // namespace garonne
