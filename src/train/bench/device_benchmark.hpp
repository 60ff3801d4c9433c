// What the device at hand does, measured, and written as a cluster for the planner.
#pragma once

#include <cstdint>
#include <string>

#include "base/config.hpp"
#include "dist/session.hpp"
#include "plan/model/cluster.hpp"

namespace garonne::train {

struct DeviceBenchmarkOptions {
  double seconds_each = 0.2;  // for each thing that is measured
  // Of products: rows, columns, depth; 0: 2048 on processors, 8192 on GPUs.
  std::int64_t largest_side = 0;
  int threads = 1;    // of a rank, where the processor computes
  std::string links;  // a cluster file; empty: there is one device and no link
  std::string disk;   // a folder on it; empty: none is measured
};

// Everything of a cluster that one device tells: run.device of `config` by products of three types,
// products by shape, copies and small kernels, all ranks at once; of a GPU its memory, what of it
// is taken already, and copies from and to the host; the host's memory; the disk while the
// processor computes. The rest, which is nodes and links, is that of options.links. Collective; the
// result is on rank 0. Throws ConfigError for several ranks without links, for a file of links
// whose nodes have another number of devices than this one has ranks, and as RunDevice does.
plan::Cluster run_device_benchmark(const DeviceBenchmarkOptions& options, const RunConfig& config,
                                   dist::Session& session);

// A table for people.
std::string format_device_benchmark(const plan::Cluster& cluster);

}  // namespace garonne::train
