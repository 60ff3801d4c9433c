#include "plan/chain/chain_json.hpp"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "base/json_input.hpp"
#include "plan/model/file_seconds.hpp"

namespace garonne::plan {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr std::int64_t most_bytes = std::int64_t{1} << 48;
constexpr std::int64_t most_total_bytes = std::int64_t{1} << 60;
constexpr double least_rate = 1e-6;  // so that no copy takes for ever
constexpr double most_rate = 1e18;

struct OperationName {
  ChainOperationKind kind;
  std::string_view name;
};
constexpr std::array<OperationName, 9> operation_names = {{
    {ChainOperationKind::ForwardDiscard, "forward-discard"},
    {ChainOperationKind::ForwardCheckpoint, "forward-checkpoint"},
    {ChainOperationKind::ForwardKeep, "forward-keep"},
    {ChainOperationKind::Drop, "drop"},
    {ChainOperationKind::Backward, "backward"},
    {ChainOperationKind::CopyOut, "copy-out"},
    {ChainOperationKind::WaitOut, "wait-out"},
    {ChainOperationKind::CopyIn, "copy-in"},
    {ChainOperationKind::WaitIn, "wait-in"},
}};

const char* name_of(ChainItem item) {
  if (item == ChainItem::Value) return "value";
  return item == ChainItem::Saved ? "saved" : "weights";
}

bool is_copy(ChainOperationKind kind) {
  return kind == ChainOperationKind::CopyOut || kind == ChainOperationKind::WaitOut ||
         kind == ChainOperationKind::CopyIn || kind == ChainOperationKind::WaitIn;
}

std::int64_t bytes_of(const JsonPlace& place) {
  return place.integer(0, most_bytes);
}

PassCost pass_from(const JsonPlace& place) {
  place.expect_keys({"seconds", "transient_bytes"});
  return {seconds_of(place.key("seconds")), bytes_of(place.key("transient_bytes"))};
}

ChainOption option_from(const JsonPlace& place, const ChainBlock& block) {
  place.expect_keys({"name", "saved_bytes", "forward", "backward"});
  ChainOption option;
  option.name = place.key("name").text();
  option.saved_bytes = bytes_of(place.key("saved_bytes"));
  if (option.saved_bytes < block.output_bytes) {
    place.key("saved_bytes")
        .refuse(
            fmt::format("is less than output_bytes = {}, which it contains", block.output_bytes));
  }
  option.forward = pass_from(place.key("forward"));
  option.backward = pass_from(place.key("backward"));
  return option;
}

ChainBlock block_from(const JsonPlace& place) {
  place.expect_keys({"name", "output_bytes", "forward", "options"},
                    {"gradient_bytes", "weight_bytes"});
  ChainBlock block;
  block.name = place.key("name").text();
  block.output_bytes = bytes_of(place.key("output_bytes"));
  if (place.has("gradient_bytes")) block.gradient_bytes = bytes_of(place.key("gradient_bytes"));
  if (place.has("weight_bytes")) block.weight_bytes = bytes_of(place.key("weight_bytes"));
  block.forward = pass_from(place.key("forward"));
  const JsonPlace options = place.key("options");
  if (options.size() == 0) options.refuse("has no option");
  if (options.size() > most_block_options)
    options.refuse(fmt::format("has more than {}", most_block_options));
  std::set<std::string> names;
  for (const JsonPlace& option : options.elements()) {
    block.options.push_back(option_from(option, block));
    if (!names.insert(block.options.back().name).second)
      option.key("name").refuse("is the name of two options");
  }
  return block;
}

// Sums of all sizes and times must stay numbers that can be counted with.
void check_totals(const Chain& chain, const JsonFile& file) {
  std::int64_t total = chain.input_bytes;
  for (const auto& block : chain.blocks) {
    std::int64_t largest = 0;
    for (const auto& option : block.options) {
      largest = std::max({largest, option.saved_bytes + option.forward.transient_bytes,
                          option.saved_bytes + option.backward.transient_bytes});
    }
    total += largest + block.output_bytes + block.gradient_bytes + block.weight_bytes +
             block.forward.transient_bytes;
  }
  if (total > most_total_bytes) {
    file.refuse("blocks", fmt::format("{} bytes in all", total),
                fmt::format("are above {}", most_total_bytes));
  }
}

ordered_json to_json(const PassCost& cost) {
  return {{"seconds", cost.seconds}, {"transient_bytes", cost.transient_bytes}};
}

ordered_json to_json(const ChainOperation& operation) {
  ordered_json result = ordered_json::array();
  for (const auto& [kind, name] : operation_names) {
    if (kind == operation.kind) result.push_back(name);
  }
  // A drop of a value has no word for it, as in files from before there were others.
  if (is_copy(operation.kind) ||
      (operation.kind == ChainOperationKind::Drop && operation.item != ChainItem::Value))
    result.push_back(name_of(operation.item));
  result.push_back(operation.block);
  if (operation.kind == ChainOperationKind::ForwardKeep) result.push_back(operation.option);
  return result;
}

double rate_of(const JsonPlace& place) {
  const double rate = place.number(0, most_rate);
  if (rate < least_rate) place.refuse(fmt::format("is less than {}", least_rate));
  return rate;
}

}  // namespace

ordered_json to_json(const Chain& chain) {
  ordered_json blocks = ordered_json::array();
  for (const auto& block : chain.blocks) {
    ordered_json options = ordered_json::array();
    for (const auto& option : block.options) {
      options.push_back({{"name", option.name},
                         {"saved_bytes", option.saved_bytes},
                         {"forward", to_json(option.forward)},
                         {"backward", to_json(option.backward)}});
    }
    ordered_json row = {{"name", block.name}, {"output_bytes", block.output_bytes}};
    if (block.gradient_bytes != 0) row["gradient_bytes"] = block.gradient_bytes;
    if (block.weight_bytes != 0) row["weight_bytes"] = block.weight_bytes;
    row["forward"] = to_json(block.forward);
    row["options"] = std::move(options);
    blocks.push_back(std::move(row));
  }
  ordered_json result = {
      {"format", "garonne.chain"}, {"version", 1}, {"input_bytes", chain.input_bytes}};
  if (chain.links) {
    result["out_bytes_per_second"] = chain.links->out_bytes_per_second;
    result["in_bytes_per_second"] = chain.links->in_bytes_per_second;
  }
  result["blocks"] = std::move(blocks);
  return result;
}

Chain chain_from_json(const json& source, const std::string& path) {
  const JsonFile file(source, path);
  const JsonPlace root = file.root();
  root.expect_format("garonne.chain", 1);
  root.expect_keys({"format", "version", "input_bytes", "blocks"},
                   {"out_bytes_per_second", "in_bytes_per_second"});
  Chain chain;
  chain.input_bytes = bytes_of(root.key("input_bytes"));
  if (root.has("out_bytes_per_second") || root.has("in_bytes_per_second")) {
    chain.links = ChainLinks{rate_of(root.key("out_bytes_per_second")),
                             rate_of(root.key("in_bytes_per_second"))};
  }
  const JsonPlace blocks = root.key("blocks");
  if (blocks.size() == 0) blocks.refuse("has no block");
  if (blocks.size() > most_chain_blocks)
    blocks.refuse(fmt::format("has more than {}", most_chain_blocks));
  for (const JsonPlace& block : blocks.elements()) chain.blocks.push_back(block_from(block));
  check_totals(chain, file);
  return chain;
}

ordered_json to_json(const ChainSchedule& schedule) {
  ordered_json operations = ordered_json::array();
  for (const auto& operation : schedule.operations) operations.push_back(to_json(operation));
  ordered_json result = {
      {"format", "garonne.chain-schedule"},
      {"version", 1},
      {"algorithm", schedule.algorithm},
      {"budget_bytes", schedule.budget_bytes},
      {"peak_bytes", schedule.peak_bytes},
      {"seconds", schedule.seconds},
      {"lower_bound_seconds", schedule.lower_bound_seconds},
      {"keep_all",
       {{"seconds", schedule.keep_all.seconds}, {"peak_bytes", schedule.keep_all.peak_bytes}}},
      {"minimum_budget_bytes", schedule.minimum_budget_bytes}};
  if (schedule.copies.out_bytes + schedule.copies.in_bytes > 0) {
    result["copies"] = {{"out_bytes", schedule.copies.out_bytes},
                        {"in_bytes", schedule.copies.in_bytes},
                        {"peak_below_bytes", schedule.copies.peak_below_bytes},
                        {"waiting_seconds", schedule.copies.waiting_seconds}};
  }
  result["operations"] = std::move(operations);
  return result;
}

}  // namespace garonne::plan
