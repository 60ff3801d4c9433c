#include "plan/model/cost_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.hpp"
#include "plan/model/file_seconds.hpp"

namespace garonne::plan {
namespace {

// What one number of a file may be, so that sums over a model are numbers too.
constexpr std::int64_t most_bytes = std::int64_t{1} << 48;
constexpr double most_roof = 1e18;
constexpr double most_disk_rate = 1e15;  // bytes a second

// The issue seconds of a row, by key.
constexpr std::pair<const char*, double CostRow::*> issue_keys[] = {
    {"forward_issue_seconds", &CostRow::forward_issue_seconds},
    {"forward_keep_issue_seconds", &CostRow::forward_keep_issue_seconds},
    {"backward_issue_seconds", &CostRow::backward_issue_seconds},
    {"backward_weight_issue_seconds", &CostRow::backward_weight_issue_seconds}};

}  // namespace

nlohmann::ordered_json to_json(const CostTable& table) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::object();
  for (const auto& [key, row] : table.rows) {
    rows[key] = {{"forward_seconds", row.forward_seconds},
                 {"forward_keep_seconds", row.forward_keep_seconds},
                 {"backward_seconds", row.backward_seconds},
                 {"backward_weight_seconds", row.backward_weight_seconds},
                 {"value_bytes", row.value_bytes},
                 {"private_bytes", row.private_bytes},
                 {"forward_transient_bytes", row.forward_transient_bytes},
                 {"forward_keep_transient_bytes", row.forward_keep_transient_bytes},
                 {"backward_transient_bytes", row.backward_transient_bytes},
                 {"backward_weight_transient_bytes", row.backward_weight_transient_bytes},
                 {"in_place_transient_bytes", row.in_place_transient_bytes},
                 {"pinned", row.pinned}};
    for (const auto& [name, seconds] : issue_keys) {
      if (row.*seconds > 0) rows[key][name] = row.*seconds;
    }
  }
  nlohmann::ordered_json json = {{"format", "garonne.costs"},  {"version", cost_table_version},
                                 {"machine", table.machine},   {"product_roof", table.product_roof},
                                 {"products", table.products}, {"rows", std::move(rows)}};
  for (const auto& [folder, rates] : table.disks) {
    json["disks"][folder] = {
        {"latency_seconds", rates.latency_seconds}, {"write", rates.write}, {"read", rates.read}};
  }
  return json;
}

CostTable cost_table_from_json(const nlohmann::json& json, const std::string& path,
                               FileOwner owner) {
  const JsonFile file(json, path, owner);
  const JsonPlace root = file.root();
  root.expect_format("garonne.costs", cost_table_version);
  root.expect_keys({"format", "version", "machine", "rows"}, {"product_roof", "products", "disks"});
  CostTable table;
  table.machine = root.key("machine").text();
  if (root.has("product_roof")) table.product_roof = root.key("product_roof").number(0, most_roof);
  if (root.has("products")) {
    for (const auto& [key, library] : root.key("products").members())
      table.products[key] = library.text();
  }
  if (root.has("disks")) {
    for (const auto& [folder, source] : root.key("disks").members()) {
      source.expect_keys({"latency_seconds", "write", "read"});
      DiskRates rates;
      rates.latency_seconds = seconds_of(source.key("latency_seconds"));
      rates.write = source.key("write").number(1, most_disk_rate);
      rates.read = source.key("read").number(1, most_disk_rate);
      table.disks.emplace(folder, rates);
    }
  }
  for (const auto& [key, source] : root.key("rows").members()) {
    source.expect_keys(
        {"forward_seconds", "forward_keep_seconds", "backward_seconds", "backward_weight_seconds",
         "value_bytes", "private_bytes", "forward_transient_bytes", "forward_keep_transient_bytes",
         "backward_transient_bytes", "backward_weight_transient_bytes", "in_place_transient_bytes"},
        {"pinned", issue_keys[0].first, issue_keys[1].first, issue_keys[2].first,
         issue_keys[3].first});
    const auto seconds = [&place = source](const char* name) {
      return seconds_of(place.key(name));
    };
    const auto bytes = [&place = source](const char* name) {
      return place.key(name).integer(0, most_bytes);
    };
    CostRow row;
    row.forward_seconds = seconds("forward_seconds");
    row.forward_keep_seconds = seconds("forward_keep_seconds");
    row.backward_seconds = seconds("backward_seconds");
    row.backward_weight_seconds = seconds("backward_weight_seconds");
    row.value_bytes = bytes("value_bytes");
    row.private_bytes = bytes("private_bytes");
    row.forward_transient_bytes = bytes("forward_transient_bytes");
    row.forward_keep_transient_bytes = bytes("forward_keep_transient_bytes");
    row.backward_transient_bytes = bytes("backward_transient_bytes");
    row.backward_weight_transient_bytes = bytes("backward_weight_transient_bytes");
    row.in_place_transient_bytes = bytes("in_place_transient_bytes");
    if (source.has("pinned")) row.pinned = source.key("pinned").text();
    for (const auto& [name, issue_seconds] : issue_keys) {
      if (source.has(name)) row.*issue_seconds = seconds(name);
    }
    table.rows.emplace(key, row);
  }
  return table;
}

std::string cost_key_of(const NodeSpec& node, int option) {
  return option == 0 ? node.cost_key
                     : fmt::format("{} kept as {}", node.cost_key, node.keep_option(option).name);
}

bool apply_costs(const CostTable& table, ModelGraph& graph) {
  bool complete = true;
  for (auto& node : graph.nodes) {
    if (node.communicates()) continue;
    node.measured = true;
    for (int k = 0; k < node.keep_options(); ++k)
      node.measured = node.measured && table.rows.contains(cost_key_of(node, k));
    if (!node.measured) {
      complete = false;
      continue;
    }
    // The workspaces of libraries are known by measuring only; what nodes declare is a bound.
    for (int k = 0; k < node.keep_options(); ++k) {
      const CostRow& row = table.rows.at(cost_key_of(node, k));
      KeepOption& option = node.keep_option(k);
      option.forward_keep.seconds = row.forward_keep_seconds;
      option.forward_keep.issue_seconds = row.forward_keep_issue_seconds;
      option.forward_keep.transient_bytes = row.forward_keep_transient_bytes;
      option.backward.seconds = row.backward_seconds;
      option.backward.issue_seconds = row.backward_issue_seconds;
      option.backward.transient_bytes = row.backward_transient_bytes;
      option.backward_weight.seconds = row.backward_weight_seconds;
      option.backward_weight.issue_seconds = row.backward_weight_issue_seconds;
      option.backward_weight.transient_bytes = row.backward_weight_transient_bytes;
      option.in_place_transient_bytes = row.in_place_transient_bytes;
      if (node.splits_backward) option.backward = node.backward;
    }
    const CostRow& row = table.rows.at(node.cost_key);
    node.forward.seconds = row.forward_seconds;
    node.forward.issue_seconds = row.forward_issue_seconds;
    node.forward.transient_bytes = row.forward_transient_bytes;
  }
  return complete;
}

void merge_shorter(const CostTable& from, CostTable& into) {
  for (const auto& [key, row] : from.rows) {
    const auto [known, fresh] = into.rows.emplace(key, row);
    if (fresh) continue;
    for (const auto seconds : {&CostRow::forward_seconds, &CostRow::forward_keep_seconds,
                               &CostRow::backward_seconds, &CostRow::backward_weight_seconds}) {
      known->second.*seconds = std::min(known->second.*seconds, row.*seconds);
    }
    for (const auto& [name, seconds] : issue_keys)
      known->second.*seconds = std::min(known->second.*seconds, row.*seconds);
  }
  into.product_roof = std::max(into.product_roof, from.product_roof);
  for (const auto& [folder, rates] : from.disks) into.disks[folder] = rates;
}

NominalRates rates_of(const Cluster& cluster, Precision precision, ProductRounding rounding) {
  NominalRates rates;
  rates.operations_per_second = cluster.flops(precision, rounding);
  rates.bytes_per_second = cluster.bytes_per_second;
  rates.least_seconds = cluster.least_seconds;
  rates.issue_seconds = cluster.issue_seconds;
  rates.efficiency = cluster.efficiency;
  rates.products = cluster.products;
  rates.software = cluster.software;
  return rates;
}

namespace {

// Of each block: the nodes that compute.
std::vector<int> computing_nodes(const ModelGraph& graph) {
  std::vector<int> nodes(static_cast<std::size_t>(graph.blocks()), 0);
  for (const NodeSpec& node : graph.nodes) {
    if (!node.communicates()) ++nodes[static_cast<std::size_t>(node.block)];
  }
  return nodes;
}

// Of what a forward takes the host of another framework: its backward is issued by the engine of
// automatic differentiation, without the language that models are written in.
constexpr double backward_issue_share = 0.25;

// For each time that there are twice as many tensor ranks: they wait for the slowest of their
// hosts.
void issue_collectives_for(int members, NodeSpec& node) {
  const double doublings = std::log2(members);
  node.forward.issue_seconds *= doublings;
  for (int k = 0; k < node.keep_options(); ++k) {
    node.keep_option(k).forward_keep.issue_seconds *= doublings;
    node.keep_option(k).backward.issue_seconds *= doublings;
  }
}

void issue_collectives(double seconds, NodeSpec& node) {
  node.forward.issue_seconds = node.forward_collective.kind.empty() ? 0 : seconds;
  for (int k = 0; k < node.keep_options(); ++k) {
    KeepOption& option = node.keep_option(k);
    option.forward_keep.issue_seconds = node.forward.issue_seconds;
    option.backward.issue_seconds = node.backward_collective.kind.empty() ? 0 : seconds;
  }
}

}  // namespace

void estimate_seconds(const NominalRates& rates, ModelGraph& graph) {
  const Software& software = rates.software;
  const std::vector<int> nodes_of_block = computing_nodes(graph);
  for (auto& node : graph.nodes) {
    // Its seconds are those of the link: set_collective_seconds.
    if (node.communicates()) {
      issue_collectives(software.collective_issue_seconds, node);
      continue;
    }
    std::int64_t bytes = graph.values[static_cast<std::size_t>(node.output)].bytes;
    for (const int input : node.inputs)
      bytes += graph.values[static_cast<std::size_t>(input)].bytes;
    const double moving = static_cast<double>(bytes) / rates.bytes_per_second;
    const ValueSpec& read = graph.values[static_cast<std::size_t>(
        node.inputs.empty() ? node.output : node.inputs.front())];
    const auto number = static_cast<double>(number_bytes(read.type));
    const ValueSpec& made = graph.values[static_cast<std::size_t>(node.output)];
    const double elements =
        static_cast<double>(made.bytes) / static_cast<double>(number_bytes(made.type));
    const SoftwarePass forward = software_forward(software, node, elements, number);
    const SoftwarePass backward = software_backward(software, node, elements, number);
    const auto computing = [&](const OperationCost& cost, const SoftwarePass& pass) {
      const double share = rates.products.of(cost.product, rates.efficiency) / rates.efficiency;
      return cost.floating_point_operations * pass.operations /
                 (rates.operations_per_second * share) +
             pass.bytes / rates.bytes_per_second;
    };
    const auto launch = [&](OperationCost& cost, double share_of_pass) {
      cost.seconds = std::max(cost.seconds, cost.kernels * rates.least_seconds);
      cost.issue_seconds = software.block_issue_seconds > 0
                               ? software.block_issue_seconds * share_of_pass
                               : cost.kernels * rates.issue_seconds;
    };
    double sums = 0;
    for (const int parameter : node.parameters) {
      sums += static_cast<double>(graph.parameters[static_cast<std::size_t>(parameter)].elements) *
              gradient_sum_bytes(software, number) / rates.bytes_per_second;
    }
    const double share_of_block = 1.0 / nodes_of_block[static_cast<std::size_t>(node.block)];
    node.forward.seconds = computing(node.forward, forward) + moving;
    launch(node.forward, share_of_block);
    for (int k = 0; k < node.keep_options(); ++k) {
      KeepOption& option = node.keep_option(k);
      option.forward_keep.seconds = computing(option.forward_keep, forward) + moving;
      // A backward reads what the forward read and made, and makes as much again.
      option.backward.seconds = computing(option.backward, backward) +
                                (node.splits_backward ? moving : 2 * moving + sums);
      option.backward_weight.seconds =
          node.splits_backward ? computing(option.backward_weight, SoftwarePass()) + moving + sums
                               : 0;
      launch(option.forward_keep, share_of_block);
      const double backward_share = share_of_block * backward_issue_share;
      launch(option.backward, node.splits_backward ? backward_share / 2 : backward_share);
      if (node.splits_backward) launch(option.backward_weight, backward_share / 2);
    }
  }
}

void set_collective_seconds(int members, const GroupLink& group, ModelGraph& graph) {
  const auto seconds = [&](const NodeCollective& collective) {
    if (collective.kind.empty()) return 0.0;
    return collective_seconds(collective.kind, collective.bytes, members, group);
  };
  for (auto& node : graph.nodes) {
    if (!node.communicates()) continue;
    issue_collectives_for(members, node);
    node.forward.seconds = seconds(node.forward_collective);
    for (int k = 0; k < node.keep_options(); ++k) {
      node.keep_option(k).forward_keep.seconds = node.forward.seconds;
      node.keep_option(k).backward.seconds = seconds(node.backward_collective);
    }
  }
}

}  // namespace garonne::plan
