// Disks of nodes in replay of ranks together: copies of several ranks of a node at one time share
// its rate, and one that copies alone has all of it.
#pragma once

#include <vector>

#include "plan/program/replay.hpp"

namespace garonne::plan {

// Seconds of copies to and from disks in Programs are those of a rank that has its even share of
// the node's rate all the time.
struct SharedDisk {
  int ranks_on_node = 1;       // that the even share is of
  double latency_seconds = 0;  // of a copy, in its seconds; nobody shares it
  bool half_duplex = false;    // the even share is of one direction, and both are one resource
  // alike[i][j]: how many ranks on the node of the i-th Program do what that of the j-th does. Of a
  // row at most `ranks_on_node` together.
  std::vector<std::vector<int>> alike;
};

// As those of plan/program/replay.hpp with copies that share disks: none takes longer than there.
std::vector<Prediction> replay_together(const std::vector<Program>& programs,
                                        const SharedDisk& disk);
std::vector<Prediction> replay_pipeline(std::vector<Program> stages, const Overlap& overlap,
                                        const SharedDisk& disk);

}  // namespace garonne::plan
