#include "plan/model/cost_table.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "plan/model/group_links.hpp"

namespace garonne::plan {
namespace {

// What one number of a file may be, so that sums over a model are numbers too.
constexpr std::int64_t most_bytes = std::int64_t{1} << 48;
constexpr double most_seconds = 1e12;
constexpr double most_roof = 1e18;

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
  }
  return {{"format", "garonne.costs"},  {"version", cost_table_version},
          {"machine", table.machine},   {"product_roof", table.product_roof},
          {"products", table.products}, {"rows", std::move(rows)}};
}

CostTable cost_table_from_json(const nlohmann::json& json, const std::string& path,
                               FileOwner owner) {
  const JsonFile file(json, path, owner);
  const JsonPlace root = file.root();
  root.expect_format("garonne.costs", cost_table_version);
  root.expect_keys({"format", "version", "machine", "rows"}, {"product_roof", "products"});
  CostTable table;
  table.machine = root.key("machine").text();
  if (root.has("product_roof")) table.product_roof = root.key("product_roof").number(0, most_roof);
  if (root.has("products")) {
    for (const auto& [key, library] : root.key("products").members())
      table.products[key] = library.text();
  }
  for (const auto& [key, source] : root.key("rows").members()) {
    source.expect_keys(
        {"forward_seconds", "forward_keep_seconds", "backward_seconds", "backward_weight_seconds",
         "value_bytes", "private_bytes", "forward_transient_bytes", "forward_keep_transient_bytes",
         "backward_transient_bytes", "backward_weight_transient_bytes", "in_place_transient_bytes"},
        {"pinned"});
    const auto seconds = [&place = source](const char* name) {
      return place.key(name).number(0, most_seconds);
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
    table.rows.emplace(key, row);
  }
  return table;
}

bool apply_costs(const CostTable& table, ModelGraph& graph) {
  bool complete = true;
  for (auto& node : graph.nodes) {
    if (node.communicates()) continue;
    const auto found = table.rows.find(node.cost_key);
    node.measured = found != table.rows.end();
    if (!node.measured) {
      complete = false;
      continue;
    }
    node.forward.seconds = found->second.forward_seconds;
    node.forward_keep.seconds = found->second.forward_keep_seconds;
    node.backward.seconds = found->second.backward_seconds;
    node.backward_weight.seconds = found->second.backward_weight_seconds;
    // The workspaces of libraries are known by measuring only; what nodes declare is a bound.
    node.forward.transient_bytes = found->second.forward_transient_bytes;
    node.forward_keep.transient_bytes = found->second.forward_keep_transient_bytes;
    node.backward.transient_bytes = found->second.backward_transient_bytes;
    node.backward_weight.transient_bytes = found->second.backward_weight_transient_bytes;
    node.in_place_transient_bytes = found->second.in_place_transient_bytes;
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
  }
  into.product_roof = std::max(into.product_roof, from.product_roof);
}

void estimate_seconds(const NominalRates& rates, ModelGraph& graph) {
  for (auto& node : graph.nodes) {
    // Its seconds are those of the link: set_collective_seconds.
    if (node.communicates()) continue;
    std::int64_t bytes = graph.values[static_cast<std::size_t>(node.output)].bytes;
    for (const int input : node.inputs)
      bytes += graph.values[static_cast<std::size_t>(input)].bytes;
    const double moving = static_cast<double>(bytes) / rates.bytes_per_second;
    const auto computing = [&](const OperationCost& cost) {
      return cost.floating_point_operations / rates.operations_per_second;
    };
    node.forward.seconds = computing(node.forward) + moving;
    node.forward_keep.seconds = computing(node.forward_keep) + moving;
    // A backward reads what the forward read and made, and makes as much again.
    node.backward.seconds = computing(node.backward) + (node.splits_backward ? 1 : 2) * moving;
    node.backward_weight.seconds =
        node.splits_backward ? computing(node.backward_weight) + moving : 0;
  }
}

void set_collective_seconds(int members, const Link& link, ModelGraph& graph) {
  const auto seconds = [&](const NodeCollective& collective) {
    if (collective.kind.empty()) return 0.0;
    return collective_seconds(collective.kind, collective.bytes, members, link);
  };
  for (auto& node : graph.nodes) {
    if (!node.communicates()) continue;
    node.forward.seconds = node.forward_keep.seconds = seconds(node.forward_collective);
    node.backward.seconds = seconds(node.backward_collective);
  }
}

}  // namespace garonne::plan
