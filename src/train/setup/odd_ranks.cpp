#include "train/setup/odd_ranks.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/counted.hpp"
#include "base/median.hpp"
#include "base/process_cores.hpp"

namespace garonne::train {
namespace {

using What = OddRank::What;

constexpr double most_times = 2;
constexpr double most_deviations = 5;
// What scheduling and clocks come to.
constexpr double least_excess_seconds = 5e-3;
constexpr double least_link_excess_seconds = 5e-4;
constexpr double least_gpu_excess_seconds = 2e-4;
// Of fewer others the median says little.
constexpr std::size_t few_links = 3;
constexpr double most_times_of_few = 4;

// "rank 3", "ranks 0-3,8".
std::string names_of(const std::vector<int>& ranks) {
  return (ranks.size() == 1 ? "rank " : "ranks ") + core_list_text(ranks);
}

std::map<std::string, std::vector<int>> ranks_of_hosts(const std::vector<RankPlace>& ranks) {
  std::map<std::string, std::vector<int>> hosts;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank)
    hosts[ranks[rank].host].push_back(static_cast<int>(rank));
  return hosts;
}

const RankPlace& place_of(const std::vector<RankPlace>& ranks, int rank) {
  return ranks[static_cast<std::size_t>(rank)];
}

// What the ranks of a host want and what they have.
struct HostCores {
  std::set<int> cores;
  double quota = 0;  // the largest of them; 0 = none
  int threads = 0;
  bool known = true;

  double available() const {
    const auto count = static_cast<double>(cores.size());
    return quota > 0 ? std::min(quota, count) : count;
  }
  bool oversubscribed() const { return known && threads > available(); }
};

HostCores cores_of(const std::vector<RankPlace>& ranks, const std::vector<int>& of_host) {
  HostCores host;
  bool all_have_quota = true;
  for (const int rank : of_host) {
    const RankPlace& place = place_of(ranks, rank);
    host.cores.insert(place.cores.begin(), place.cores.end());
    host.quota = std::max(host.quota, place.core_quota);
    all_have_quota = all_have_quota && place.core_quota > 0;
    host.threads += place.threads;
    host.known = host.known && !place.cores.empty();
  }
  if (!all_have_quota) host.quota = 0;
  return host;
}

// Ranks with more threads than cores of their own, in one line for those that are alike.
void say_few_cores(const std::string& name, const std::vector<RankPlace>& ranks,
                   const std::vector<int>& of_host, std::vector<std::string>& said) {
  std::map<std::pair<std::size_t, int>, std::vector<int>> alike;
  for (const int rank : of_host) {
    const RankPlace& place = place_of(ranks, rank);
    if (!place.cores.empty() && static_cast<std::size_t>(place.threads) > place.cores.size())
      alike[{place.cores.size(), place.threads}].push_back(rank);
  }
  for (const auto& [what, of_kind] : alike) {
    said.push_back(fmt::format(
        "{} of {} {} {} on {} each: bind ranks to as many cores (mpirun --map-by "
        "slot:PE={}, srun --cpus-per-task={}) or to none (mpirun --bind-to none), or set "
        "run.threads = {}",
        names_of(of_kind), name, of_kind.size() == 1 ? "runs" : "run",
        counted(what.second, "thread"), counted(static_cast<std::int64_t>(what.first), "core"),
        what.second, what.second, what.first));
  }
}

// Ranks that were bound to the same cores, and have more threads than these, where others of the
// host were bound elsewhere.
void say_shared_cores(const std::string& name, const std::vector<RankPlace>& ranks,
                      const std::vector<int>& of_host, std::vector<std::string>& said) {
  std::map<std::vector<int>, std::vector<int>> bound;
  for (const int rank : of_host) bound[place_of(ranks, rank).cores].push_back(rank);
  if (bound.size() < 2) return;
  for (const auto& [cores, there] : bound) {
    int threads = 0;
    for (const int rank : there) threads += place_of(ranks, rank).threads;
    if (there.size() < 2 || cores.empty() || threads <= static_cast<int>(cores.size())) continue;
    said.push_back(fmt::format(
        "{} of {} run {} threads on core{} {}, to which all of them are bound: give "
        "each cores of its own (mpirun --bind-to core --map-by core, srun "
        "--cpu-bind=cores)",
        names_of(there), name, threads, cores.size() == 1 ? "" : "s", core_list_text(cores)));
  }
}

}  // namespace

std::vector<std::string> oversubscribed_hosts(const std::vector<RankPlace>& ranks) {
  std::vector<std::string> found;
  for (const auto& [name, of_host] : ranks_of_hosts(ranks))
    if (cores_of(ranks, of_host).oversubscribed()) found.push_back(name);
  return found;
}

std::vector<std::string> placement_warnings(const std::vector<RankPlace>& ranks) {
  std::vector<std::string> said;
  for (const auto& [name, of_host] : ranks_of_hosts(ranks)) {
    const HostCores host = cores_of(ranks, of_host);
    const std::size_t before = said.size();
    say_few_cores(name, ranks, of_host, said);
    say_shared_cores(name, ranks, of_host, said);
    if (said.size() > before || !host.oversubscribed()) continue;
    const std::string limit =
        host.available() < static_cast<double>(host.cores.size())
            ? fmt::format("a quota of {:g} cores (cpu.max of the control group)", host.quota)
            : fmt::format("{} ({})", counted(static_cast<std::int64_t>(host.cores.size()), "core"),
                          core_list_text({host.cores.begin(), host.cores.end()}));
    said.push_back(fmt::format(
        "{} of {} run {} threads on {}: start fewer ranks there, set run.threads lower, or ask for "
        "more cores (srun --cpus-per-task)",
        names_of(of_host), name, host.threads, limit));
  }
  return said;
}

std::vector<OddRank> odd_ranks(const std::vector<RankSpeed>& speeds,
                               const std::vector<RankPlace>& ranks) {
  const std::vector<std::string> crowded = oversubscribed_hosts(ranks);
  const auto fits = [&](int rank) {
    return !std::ranges::binary_search(crowded, place_of(ranks, rank).host);
  };
  const int count = static_cast<int>(ranks.size());
  std::vector<OddRank> odd;
  // Those of `compared` that took longer than the others, by the seconds that `of` finds.
  const auto look = [&](What what, const std::vector<int>& compared, double RankSpeed::*of,
                        std::size_t few, double least_excess) {
    const auto seconds_of = [&](int rank) { return speeds[static_cast<std::size_t>(rank)].*of; };
    if (compared.size() < 2) return;
    const bool of_few = compared.size() <= few;
    for (const int rank : compared) {
      std::vector<double> others;
      for (const int other : compared)
        if (other != rank) others.push_back(seconds_of(other));
      const double usual = of_few ? *std::ranges::min_element(others) : median(others);
      if (of_few) others.assign(1, usual);
      for (double& value : others) value = std::abs(value - usual);
      const double excess = seconds_of(rank) - usual;
      if (seconds_of(rank) > (of_few ? most_times_of_few : most_times) * usual &&
          excess > least_excess && excess > most_deviations * median(others))
        odd.push_back({what, rank, seconds_of(rank), usual, of_few});
    }
  };
  std::vector<int> compared;
  for (int rank = 0; rank < count; ++rank)
    if (fits(rank)) compared.push_back(rank);
  look(What::Compute, compared, &RankSpeed::compute_seconds, 0, least_excess_seconds);
  look(What::Memory, compared, &RankSpeed::memory_seconds, 0, least_excess_seconds);
  std::set<int> slow;
  for (const OddRank& one : odd) slow.insert(one.rank);
  for (const bool inside : {true, false}) {
    std::vector<int> links;  // by where they end
    for (int rank = 0; rank < count; ++rank) {
      const int from = (rank + count - 1) % count;
      if (fits(rank) && fits(from) && !slow.contains(rank) && !slow.contains(from) &&
          (place_of(ranks, rank).host == place_of(ranks, from).host) == inside)
        links.push_back(rank);
    }
    look(What::Link, links, &RankSpeed::link_seconds, few_links, least_link_excess_seconds);
  }
  std::erase_if(compared, [&](int rank) {
    return speeds[static_cast<std::size_t>(rank)].gpu_memory_seconds == 0;
  });
  for (const auto& [what, of] : {std::pair{What::GpuMemory, &RankSpeed::gpu_memory_seconds},
                                 std::pair{What::GpuIn, &RankSpeed::gpu_in_seconds},
                                 std::pair{What::GpuOut, &RankSpeed::gpu_out_seconds}})
    look(what, compared, of, 0, least_gpu_excess_seconds);
  return odd;
}

std::vector<OddRank> odd_in_both(const std::vector<OddRank>& before,
                                 const std::vector<OddRank>& again) {
  std::vector<OddRank> both;
  for (const OddRank& one : again) {
    if (std::ranges::any_of(before, [&](const OddRank& other) {
          return other.what == one.what && other.rank == one.rank;
        }))
      both.push_back(one);
  }
  return both;
}

std::string describe(const OddRank& odd, const std::vector<RankPlace>& ranks) {
  const RankPlace& place = place_of(ranks, odd.rank);
  const auto told = [&](const char* what, const char* look) {
    return fmt::format(
        "{} {:.1f} times as long as the {} of the others, three times in a row ({:.1f} ms and "
        "{:.1f} ms): look for {}",
        what, odd.times(), odd.of_few ? "fastest" : "median", 1e3 * odd.seconds, 1e3 * odd.median,
        look);
  };
  const std::string who = fmt::format("rank {} on {}", odd.rank, place.host);
  switch (odd.what) {
    case What::Compute:
      return who +
             told(" computes", "other processes on its cores, for a slow clock or a hot processor");
    case What::Memory:
      return who + told(" moves memory",
                        "other processes there, and for memory of another NUMA node than its cores "
                        "(mpirun --map-by numa)");
    case What::GpuMemory:
      return "the GPU of " + who +
             told(" copies within its memory",
                  "other processes on it, for a limit of its power or clock (nvidia-smi -q -d "
                  "PERFORMANCE,CLOCK) and for memory that failed (nvidia-smi -q -d ECC)");
    case What::GpuIn:
    case What::GpuOut:
      return "the GPU of " + who +
             told(odd.what == What::GpuIn ? " copies from the host" : " copies to the host",
                  "a link of fewer lanes or an older generation than those of the others "
                  "(nvidia-smi -q -d PCIE), and for a host whose memory is another NUMA node's "
                  "(mpirun --map-by numa)");
    case What::Link:
      break;
  }
  const int count = static_cast<int>(ranks.size());
  const int from = (odd.rank + count - 1) % count;
  return fmt::format("the link from rank {} on {} to {}", from, place_of(ranks, from).host, who) +
         told(" takes", "the network that MPI uses there, its cables and switches");
}

}  // namespace garonne::train
