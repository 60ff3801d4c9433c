// What the links and devices of the ranks at hand do, measured, and written as a cluster for the
// planner.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dist/link_measurement.hpp"
#include "dist/session.hpp"
#include "plan/model/cluster.hpp"

namespace garonne::train {

struct LinkBenchmarkOptions {
  std::int64_t largest_bytes = std::int64_t{1} << 23;
  double seconds_each = 0.2;  // for each size of each series
  std::int64_t pairs = 4;     // of each kind, at most
  int threads = 1;            // of a rank, for the rates of its device
};

// One kind of link: between ranks of one host, or of different hosts.
struct MeasuredLink {
  std::vector<dist::LinkSeries> series;
  dist::LinkFit messages;
  dist::LinkFit all_reduces;
  // What goes into the cluster: the curve in the place of the rate, where it has points.
  dist::LinkFit together;
  plan::RateCurve curve;
};

struct LinkBenchmark {
  std::optional<MeasuredLink> one_host;
  std::optional<MeasuredLink> across_hosts;
  // Where there is no link of a kind to measure, it has the figures of the other.
  plan::Cluster cluster;
};

// Links alone; then all ranks at once find out what their devices do, as they would in a step.
// Collective; the result is on all ranks. Throws ConfigError for a single rank.
LinkBenchmark run_link_benchmark(const LinkBenchmarkOptions& options, dist::Session& session);

// Tables for people.
std::string format_link_benchmark(const LinkBenchmark& benchmark);

}  // namespace garonne::train
