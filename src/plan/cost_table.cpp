#include "plan/cost_table.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "plan/group_links.hpp"

namespace garonne::plan {

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

CostTable cost_table_from_json(const nlohmann::json& json, const std::string& path) {
  try {
    if (json.at("format") != "garonne.costs")
      throw ConfigError(path, "", "is no garonne.costs file");
    if (json.at("version") != cost_table_version) {
      throw ConfigError(path + ": version", json.at("version").dump(),
                        fmt::format("this build reads version {}", cost_table_version));
    }
    CostTable table;
    table.machine = json.at("machine").get<std::string>();
    table.product_roof = json.value("product_roof", 0.0);
    table.products = json.value("products", nlohmann::json::object());
    for (const auto& [key, source] : json.at("rows").items()) {
      CostRow row;
      row.forward_seconds = source.at("forward_seconds").get<double>();
      row.forward_keep_seconds = source.at("forward_keep_seconds").get<double>();
      row.backward_seconds = source.at("backward_seconds").get<double>();
      row.backward_weight_seconds = source.at("backward_weight_seconds").get<double>();
      row.value_bytes = source.at("value_bytes").get<std::int64_t>();
      row.private_bytes = source.at("private_bytes").get<std::int64_t>();
      row.forward_transient_bytes = source.at("forward_transient_bytes").get<std::int64_t>();
      row.forward_keep_transient_bytes =
          source.at("forward_keep_transient_bytes").get<std::int64_t>();
      row.backward_transient_bytes = source.at("backward_transient_bytes").get<std::int64_t>();
      row.backward_weight_transient_bytes =
          source.at("backward_weight_transient_bytes").get<std::int64_t>();
      row.in_place_transient_bytes = source.at("in_place_transient_bytes").get<std::int64_t>();
      row.pinned = source.value("pinned", "");
      table.rows.emplace(key, row);
    }
    return table;
  } catch (const nlohmann::json::exception& error) {
    throw ConfigError(path, "", std::string("is not understood: ") + error.what());
  }
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
