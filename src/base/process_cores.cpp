#include "base/process_cores.hpp"

#include <sched.h>

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <string_view>

namespace garonne {

std::vector<int> cores_of_this_process() {
  cpu_set_t bound;
  CPU_ZERO(&bound);
  if (sched_getaffinity(0, sizeof bound, &bound) != 0) return {};
  std::vector<int> cores;
  for (std::size_t core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &bound)) cores.push_back(static_cast<int>(core));
  return cores;
}

std::string core_list_text(const std::vector<int>& cores) {
  std::string list;
  for (std::size_t first = 0; first < cores.size();) {
    std::size_t last = first;
    while (last + 1 < cores.size() && cores[last + 1] == cores[last] + 1) ++last;
    if (!list.empty()) list += ',';
    list += std::to_string(cores[first]);
    if (last > first) list += "-" + std::to_string(cores[last]);
    first = last + 1;
  }
  return list;
}

double core_quota_of_this_process(const std::string& proc, const std::string& control_groups) {
  // Version 2 has one line, "0::/path".
  std::ifstream groups(proc + "/self/cgroup");
  constexpr std::string_view unified = "0::";
  std::string path;
  for (std::string line; std::getline(groups, line);)
    if (line.starts_with(unified)) path = line.substr(unified.size());
  double least = 0;
  for (;;) {
    std::ifstream file(control_groups + path + "/cpu.max");
    // "max 100000" where there is no limit.
    double quota = 0;
    double period = 0;
    if (file >> quota >> period && quota > 0 && period > 0)
      least = least > 0 ? std::min(least, quota / period) : quota / period;
    const std::size_t slash = path.rfind('/');
    if (slash == std::string::npos) return least;
    path.resize(slash);
  }
}

}  // namespace garonne
