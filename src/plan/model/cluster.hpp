// A machine as the planner sees it: nodes of equal devices, and the links inside and between them.
#pragma once

#include <cstdint>
#include <string>

#include "base/precision.hpp"
#include "base/product_rounding.hpp"
#include "plan/model/device_facts.hpp"
#include "plan/model/product_efficiency.hpp"
#include "plan/model/rate_curve.hpp"
#include "plan/model/software.hpp"

namespace garonne::plan {

// From one device to another, one way. A message of b bytes takes latency + b / rate, or latency
// and what the curve says, where it has points.
struct Link {
  double latency_seconds = 0;
  double bytes_per_second = 4e9;  // of large messages
  RateCurve curve = {};           // by bytes of a message, or of all that a collective exchanges

  bool operator==(const Link&) const = default;
};

// Between a device and the memory of its host, for each device of a node that copies alone; 0 where
// nobody said.
struct CopyRates {
  double latency_seconds = 0;
  // Bytes a second from the device and to it.
  double out = 0;
  double in = 0;
  // The same while the other direction is in use.
  double out_with_in = 0;
  double in_with_out = 0;
};

// The disk of a node, which its devices share; 0 where nobody said.
struct DiskRates {
  std::int64_t bytes = 0;
  double latency_seconds = 0;
  double write = 0;  // bytes a second
  double read = 0;
  bool half_duplex = false;  // reads and writes share one rate

  bool known() const { return write > 0 && read > 0; }
  bool operator==(const DiskRates&) const = default;
};

// The host of a node.
struct HostFacts {
  std::int64_t memory_bytes = 0;
  double bytes_per_second = 0;  // of its memory
  // That communication takes from what computes, for each byte that passes; 0 where devices
  // communicate by themselves.
  double communication_seconds_per_byte = 0;
};

struct Cluster {
  std::string name;
  std::string source;  // where the figures are from
  int devices_per_node = 1;
  int nodes = 1;

  // Of one device.
  DeviceFacts device;
  std::string device_name;  // for people, as the next one
  std::string driver;
  std::int64_t memory_bytes = 0;
  // Of it, what no budget has: contexts, code, communicators.
  std::int64_t reserved_bytes = 0;
  // Floating-point operations a second of large products; 0 = the device has none of that type.
  double float32_flops = 0;
  double bfloat16_flops = 0;
  double float64_flops = 0;
  double tfloat32_flops = 0;  // of float32 numbers with ProductRounding::Tf32
  double float16_flops = 0;
  // What products of a model reach of them, above 0 and at most 1; of shapes that have points,
  // those.
  double efficiency = 1;
  ProductEfficiency products;
  double bytes_per_second = 0;  // of the device's memory
  // Of each kernel: the least that it takes, and what the host takes to issue it. 0 where the host
  // computes.
  double least_seconds = 0;
  double issue_seconds = 0;
  // The devices are like this machine's: costs that were measured here are theirs, too.
  bool profiled_here = false;

  Link inside_node;
  // What one device has of it, or where `shared_by_node` what all devices of a node have together.
  Link between_nodes;
  bool shared_by_node = false;
  // Collectives go within nodes first, then between them, as NCCL's do in training. The file does
  // not say it: the run does, by what its ranks are on and what carries their messages.
  bool two_level_collectives = false;

  CopyRates copies;
  DiskRates disk;
  HostFacts host;
  Software software;

  int devices() const { return devices_per_node * nodes; }
  // Throws ConfigError (device.flops) where the device has no such type.
  double flops(Precision precision, ProductRounding rounding = ProductRounding::Ieee) const;
};

// The TOML format of docs/formats.md, versions 1 and 2. `name` is that of the file. Throws
// ConfigError for a key that is not known (with a suggestion), of a later version than the file,
// missing, or out of range.
Cluster parse_cluster(const std::string& toml_text, const std::string& name);

// Reads the file; throws ConfigError as parse_cluster does, and where it cannot be read.
Cluster load_cluster(const std::string& path);

// The file that parse_cluster reads, of version 2.
std::string to_toml(const Cluster& cluster);

}  // namespace garonne::plan
