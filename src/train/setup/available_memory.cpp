#include "train/setup/available_memory.hpp"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>
#include <vector>

#include "base/bytes.hpp"
#include "base/whole_number.hpp"

namespace garonne::train {
namespace {

constexpr std::int64_t kibibyte = 1024;
constexpr std::int64_t mebibyte = 1024 * kibibyte;

// Version 1 says "without end" by a number near 2^63.
std::optional<std::int64_t> number_below_no_limit(std::string_view text) {
  const auto value = whole_number(text);
  return value && *value >= 0 && *value < std::int64_t{1} << 60 ? value : std::nullopt;
}

// The first word of a file, if it is a number: "max" is none.
std::optional<std::int64_t> number_in(const std::string& path) {
  std::ifstream file(path);
  std::string word;
  if (!(file >> word)) return std::nullopt;
  return number_below_no_limit(word);
}

// The number behind a name, in files of lines such as "name 12" or "Name: 12 kB".
std::optional<std::int64_t> number_of(const std::string& path, std::string_view name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string first;
    std::string second;
    if (words >> first >> second && first == name) return number_below_no_limit(second);
  }
  return std::nullopt;
}

class Least {
 public:
  explicit Least(int ranks) : ranks_(std::max(ranks, 1)) {}

  // Of all ranks of the node together.
  void share(std::int64_t bytes, const std::string& source) { add(bytes / ranks_, source); }
  // Of this one alone.
  void add(std::int64_t bytes, const std::string& source) {
    bytes = std::max<std::int64_t>(bytes, 0);
    if (!found_.source.empty() && bytes >= found_.bytes) return;
    found_ = {bytes, source};
  }
  AvailableMemory take() {
    found_.bytes = found_.bytes / cpu_allocation_granularity * cpu_allocation_granularity;
    return found_;
  }

 private:
  int ranks_;
  AvailableMemory found_;
};

// The names that the two versions give to the same things.
struct GroupFiles {
  std::vector<const char*> limits;
  const char* used;
  const char* droppable;  // of memory.stat: pages of files that nobody needs now
};

// Limits of a group and of all above it, up to where the tree is mounted. What a container sees of
// its own path may begin further up than the mount; then only the mount itself is there.
void add_groups(const std::string& mount, std::string path, const GroupFiles& files, Least& least) {
  while (true) {
    const std::string folder = mount + path;
    for (const char* name : files.limits) {
      const auto limit = number_in(folder + "/" + name);
      if (!limit) continue;
      const std::int64_t used = number_in(folder + "/" + files.used).value_or(0);
      const std::int64_t droppable =
          number_of(folder + "/memory.stat", files.droppable).value_or(0);
      least.share(*limit - std::max<std::int64_t>(used - droppable, 0),
                  fmt::format("{} of {}", name, folder));
    }
    if (path.empty()) return;
    path.resize(path.rfind('/'));
  }
}

void add_control_groups(const MemorySources& sources, Least& least) {
  const GroupFiles first = {
      {"memory.limit_in_bytes"}, "memory.usage_in_bytes", "total_inactive_file"};
  const GroupFiles second = {{"memory.max", "memory.high"}, "memory.current", "inactive_file"};
  std::ifstream groups(sources.proc + "/self/cgroup");
  // Lines such as "0::/user.slice" or, of version 1, "4:memory:/user.slice".
  for (std::string line; std::getline(groups, line);) {
    const std::size_t one = line.find(':');
    const std::size_t two = one == std::string::npos ? one : line.find(':', one + 1);
    if (two == std::string::npos) continue;
    // With a comma before and after each.
    std::string controllers = line.substr(one, two - one + 1);
    controllers.front() = controllers.back() = ',';
    std::string path = line.substr(two + 1);
    if (path.empty() || path.front() != '/' || path.find("..") != std::string::npos) path = "";
    while (path.ends_with('/')) path.pop_back();
    if (controllers == ",,") add_groups(sources.control_groups, path, second, least);
    if (controllers.find(",memory,") != std::string::npos)
      add_groups(sources.control_groups + "/memory", path, first, least);
  }
}

void add_slurm(const MemorySources& sources, std::int64_t resident, int ranks, Least& least) {
  const auto variable = [&](const char* name) -> std::optional<std::int64_t> {
    const char* text = sources.environment ? sources.environment(name) : std::getenv(name);
    // 0 is "all of the node".
    const auto value = text == nullptr ? std::nullopt : number_below_no_limit(text);
    return value && *value > 0 && *value < std::int64_t{1} << 40 ? value : std::nullopt;
  };
  const std::int64_t used = resident * ranks;
  if (const auto node = variable("SLURM_MEM_PER_NODE"))
    least.share(*node * mebibyte - used, "SLURM_MEM_PER_NODE");
  const auto one = variable("SLURM_MEM_PER_CPU");
  const auto cpus = variable("SLURM_CPUS_ON_NODE");
  if (one && cpus && *cpus < 1 << 16)
    least.share(*one * mebibyte * *cpus - used, "SLURM_MEM_PER_CPU * SLURM_CPUS_ON_NODE");
}

}  // namespace

MemorySources MemorySources::of_this_process() {
  MemorySources sources;
  const auto limit = [](auto resource) -> std::int64_t {
    rlimit given{};
    if (::getrlimit(resource, &given) != 0 || given.rlim_cur == RLIM_INFINITY ||
        given.rlim_cur > static_cast<rlim_t>(INT64_MAX))
      return -1;
    return static_cast<std::int64_t>(given.rlim_cur);
  };
  sources.address_space_bytes = limit(RLIMIT_AS);
  sources.data_bytes = limit(RLIMIT_DATA);
  return sources;
}

AvailableMemory available_memory(const MemorySources& sources, int ranks_on_node) {
  Least least(ranks_on_node);
  const auto kibibytes = [&](const char* file, const char* name) {
    return number_of(sources.proc + file, name);
  };
  if (const auto free = kibibytes("/meminfo", "MemAvailable:"))
    least.share(*free * kibibyte, "MemAvailable of the node");
  add_control_groups(sources, least);
  const auto mine = [&](const char* name) {
    return kibibytes("/self/status", name).value_or(0) * kibibyte;
  };
  add_slurm(sources, mine("VmRSS:"), ranks_on_node, least);
  if (sources.address_space_bytes >= 0)
    least.add(sources.address_space_bytes - mine("VmSize:"), "RLIMIT_AS (ulimit -v)");
  if (sources.data_bytes >= 0)
    least.add(sources.data_bytes - mine("VmData:"), "RLIMIT_DATA (ulimit -d)");
  return least.take();
}

std::string describe_automatic_budget(int ranks_on_node, std::int64_t budget_bytes) {
  // What is free was another number when the budget was taken; what binds was the same.
  const AvailableMemory found = available_memory(MemorySources::of_this_process(), ranks_on_node);
  return fmt::format(
      "memory.budget = auto: {} a rank, by {}{}\n", format_bytes(budget_bytes), found.source,
      ranks_on_node > 1 ? fmt::format(", for {} ranks of a node", ranks_on_node) : "");
}

}  // namespace garonne::train
