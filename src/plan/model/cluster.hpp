// A machine as the planner sees it: nodes of equal devices, and the links inside and between them.
#pragma once

#include <cstdint>
#include <string>

#include "base/precision.hpp"

namespace garonne::plan {

// From one device to another, one way. A message of b bytes takes latency + b / rate.
struct Link {
  double latency_seconds = 0;
  double bytes_per_second = 4e9;

  bool operator==(const Link&) const = default;
};

struct Cluster {
  std::string name;
  std::string source;  // where the figures are from
  int devices_per_node = 1;
  int nodes = 1;

  // Of one device.
  std::int64_t memory_bytes = 0;
  // Floating-point operations a second of large products; 0 = the device has none of that type.
  double float32_flops = 0;
  double bfloat16_flops = 0;
  double float64_flops = 0;
  // What products of a model reach of them, above 0 and at most 1.
  double efficiency = 1;
  double bytes_per_second = 0;  // of the device's memory
  // The devices are like this machine's: costs that were measured here are theirs, too.
  bool profiled_here = false;

  Link inside_node;
  // What one device has of it, or where `shared_by_node` what all devices of a node have together.
  Link between_nodes;
  bool shared_by_node = false;

  int devices() const { return devices_per_node * nodes; }
  // Throws ConfigError (device.flops) where the device has no such type.
  double flops(Precision precision) const;
};

// The TOML format of docs/formats.md. `name` is that of the file. Throws ConfigError for a key that
// is not known (with a suggestion), missing, or out of range.
Cluster parse_cluster(const std::string& toml_text, const std::string& name);

// Reads the file; throws ConfigError as parse_cluster does, and where it cannot be read.
Cluster load_cluster(const std::string& path);

// The file that parse_cluster reads.
std::string to_toml(const Cluster& cluster);

}  // namespace garonne::plan
