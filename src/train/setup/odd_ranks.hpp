// Which ranks, or links between them, are not like the others, of what was found out about all.
#pragma once

#include <string>
#include <vector>

namespace garonne::train {

// Where a rank runs.
struct RankPlace {
  std::string host;
  std::vector<int> cores;  // that it may run on; empty: not known
  int threads = 1;         // that compute
  double core_quota = 0;   // of the control group, which ranks of a host share; 0 = none
};

// Hosts where the threads of ranks are more than the cores that those ranks may run on or have a
// quota of; ascending.
std::vector<std::string> oversubscribed_hosts(const std::vector<RankPlace>& ranks);

// Sentences for people, by host: ranks whose threads are more than their own cores; ranks whose
// threads are more than the cores that all of them were bound to, where others were bound
// elsewhere; else hosts that are oversubscribed. Each says what to set. `ranks` in their order.
std::vector<std::string> placement_warnings(const std::vector<RankPlace>& ranks);

// What each rank measured at the same time as all others.
struct RankSpeed {
  double compute_seconds = 0;
  double memory_seconds = 0;
  double link_seconds = 0;  // of a message from the rank before
  // Of copies within its GPU, to it and from it; 0 = not measured.
  double gpu_memory_seconds = 0;
  double gpu_in_seconds = 0;
  double gpu_out_seconds = 0;
};

struct OddRank {
  enum class What { Compute, Memory, Link, GpuMemory, GpuIn, GpuOut };
  What what = What::Compute;
  int rank = 0;
  double seconds = 0;
  double median = 0;    // of those that it is compared with
  bool of_few = false;  // it is their least

  double times() const { return seconds / median; }
};

// Those that took more than twice the median of all others, by more than five times the median
// deviation of these and by more than what a clock cannot tell (5 ms; of links 0.5 ms, of GPUs 0.2
// ms). Ranks of oversubscribed hosts are neither named nor compared with, nor are their links.
// Links are compared with those of their kind, inside of hosts or between them, and where there are
// less than three others, four times the fastest of these: of three links, the two of a slow node
// are slow. A link of a rank that computes slowly is not named.
std::vector<OddRank> odd_ranks(const std::vector<RankSpeed>& speeds,
                               const std::vector<RankPlace>& ranks);

// Those of both, with the seconds of `again`.
std::vector<OddRank> odd_in_both(const std::vector<OddRank>& before,
                                 const std::vector<OddRank>& again);

// A sentence for people.
std::string describe(const OddRank& odd, const std::vector<RankPlace>& ranks);

}  // namespace garonne::train
