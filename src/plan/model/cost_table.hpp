// The cost table: what each distinct node costs, declared by shape or measured on a machine.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "base/json_input.hpp"
#include "plan/model/cluster.hpp"
#include "plan/model/group_links.hpp"
#include "plan/model/model_graph.hpp"

namespace garonne::plan {

// One row; equal nodes share it by their cost key, where they are kept the same way. Bytes are
// those seen by the counting allocator.
struct CostRow {
  double forward_seconds = 0;
  double forward_keep_seconds = 0;
  double backward_seconds = 0;         // of the input gradients alone where they are split
  double backward_weight_seconds = 0;  // where they are
  // Of the host, to put them on the device; 0 where the host computes.
  double forward_issue_seconds = 0;
  double forward_keep_issue_seconds = 0;
  double backward_issue_seconds = 0;
  double backward_weight_issue_seconds = 0;
  std::int64_t value_bytes = 0;
  std::int64_t private_bytes = 0;
  std::int64_t forward_transient_bytes = 0;
  std::int64_t forward_keep_transient_bytes = 0;
  std::int64_t backward_transient_bytes = 0;
  std::int64_t backward_weight_transient_bytes = 0;
  std::int64_t in_place_transient_bytes = 0;  // of a backward that makes no input gradient anew
  std::string pinned;                         // as "input 0, output"
};

struct CostTable {
  std::string machine;                  // processor, threads and build that it was measured on
  std::map<std::string, CostRow> rows;  // by cost key
  nlohmann::json products = nlohmann::json::object();  // product key -> library
  double product_roof = 0;  // floating-point operations a second of the fastest large product
  // By folder: of the disk below it, for all ranks of a node together, while they compute.
  std::map<std::string, DiskRates> disks;
};

// The file format "garonne.costs" (docs/formats.md).
constexpr int cost_table_version = 2;
nlohmann::ordered_json to_json(const CostTable& table);
// Refuses, as `owner` says and with the key, what is not understood, negative or absurd: more than
// 2^48 bytes, 1e12 seconds or 1e18 operations a second.
CostTable cost_table_from_json(const nlohmann::json& json, const std::string& path,
                               FileOwner owner = FileOwner::User);

// Of a node that is kept in one of its ways: the node's key, and for further ways their name.
std::string cost_key_of(const NodeSpec& node, int option);

// Puts measured seconds and transient bytes into the nodes whose row is there; true when every node
// had one for each way in which it can be kept.
bool apply_costs(const CostTable& table, ModelGraph& graph);

// Takes over rows that are new, and from the others what took less time.
void merge_shorter(const CostTable& from, CostTable& into);

// How fast a machine is supposed to be that nobody measured.
struct NominalRates {
  double operations_per_second = 5e10;
  double bytes_per_second = 1e10;
  // Of each kernel: the least on the device, and what the host takes to issue it.
  double least_seconds = 0;
  double issue_seconds = 0;
  // Products reach so much of the peak, operations_per_second being `efficiency` of it.
  double efficiency = 1;
  ProductEfficiency products = {};
  Software software = {};
};

// Of the cluster's devices. Throws ConfigError as Cluster::flops.
NominalRates rates_of(const Cluster& cluster, Precision precision,
                      ProductRounding rounding = ProductRounding::Ieee);

// Puts seconds by declared operations and bytes into every node, so that plans can be compared
// before anything is measured; `measured` stays as it is.
void estimate_seconds(const NominalRates& rates, ModelGraph& graph);

// Puts the seconds of the links into the nodes that communicate over a tensor group of so many
// members; no table has rows for them.
void set_collective_seconds(int members, const GroupLink& group, ModelGraph& graph);

}  // namespace garonne::plan
