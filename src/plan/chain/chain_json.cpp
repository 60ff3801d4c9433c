#include "plan/chain/chain_json.hpp"

#include <fmt/format.h>

#include <array>
#include <initializer_list>
#include <optional>
#include <set>
#include <string_view>

namespace garonne::plan {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr std::int64_t most_bytes = std::int64_t{1} << 48;
constexpr std::int64_t most_total_bytes = std::int64_t{1} << 60;
constexpr double most_seconds = 1e12;

struct OperationName {
  ChainOperationKind kind;
  std::string_view name;
};
constexpr std::array<OperationName, 5> operation_names = {{
    {ChainOperationKind::ForwardDiscard, "forward-discard"},
    {ChainOperationKind::ForwardCheckpoint, "forward-checkpoint"},
    {ChainOperationKind::ForwardKeep, "forward-keep"},
    {ChainOperationKind::Drop, "drop"},
    {ChainOperationKind::Backward, "backward"},
}};

// An object of the file whose keys are taken one by one; `where` goes in front of a key in
// messages.
class Reader {
 public:
  Reader(const json& object, std::string where, std::initializer_list<const char*> known)
      : object_(object), where_(std::move(where)) {
    if (!object.is_object()) throw ConfigError(where_, shortened(object), "is no object");
    for (const auto& [key, value] : object.items()) {
      bool found = false;
      for (const char* name : known) found = found || key == name;
      if (!found) throw ConfigError(name(key), shortened(value), "is no key of this version");
    }
  }

  std::string name(const std::string& key) const { return where_ + key; }
  bool has(const char* key) const { return object_.contains(key); }

  const json& at(const char* key) const {
    if (!has(key)) throw ConfigError(name(key), "", "is missing");
    return object_.at(key);
  }
  const json& list(const char* key) const {
    const json& value = at(key);
    if (!value.is_array()) throw ConfigError(name(key), shortened(value), "is no list");
    return value;
  }
  std::string text(const char* key) const {
    const json& value = at(key);
    if (!value.is_string()) throw ConfigError(name(key), shortened(value), "is no text");
    return value.get<std::string>();
  }
  std::int64_t bytes(const char* key, std::int64_t most = most_bytes) const {
    const json& value = at(key);
    if (!value.is_number_integer())
      throw ConfigError(name(key), shortened(value), "is no whole number of bytes");
    const bool huge =
        value.is_number_unsigned() && value.get<std::uint64_t>() > static_cast<std::uint64_t>(most);
    if (!huge && value.get<std::int64_t>() < 0)
      throw ConfigError(name(key), shortened(value), "is negative");
    if (huge) throw ConfigError(name(key), shortened(value), fmt::format("is above {}", most));
    return value.get<std::int64_t>();
  }
  double seconds(const char* key) const {
    const json& value = at(key);
    if (!value.is_number()) throw ConfigError(name(key), shortened(value), "is no number");
    const double number = value.get<double>();
    if (!(number >= 0)) throw ConfigError(name(key), shortened(value), "is negative");
    if (!(number <= most_seconds))
      throw ConfigError(name(key), shortened(value), fmt::format("is above {}", most_seconds));
    return number;
  }

  void expect_format(const char* format) const {
    if (text("format") != format)
      throw ConfigError(name("format"), text("format"), fmt::format("is not {}", format));
    if (at("version") != 1)
      throw ConfigError(name("version"), shortened(at("version")), "this build reads version 1");
  }

 private:
  static std::string shortened(const json& value) {
    std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
    if (text.size() > 60) text = text.substr(0, 60) + "…";
    return text;
  }

  const json& object_;
  std::string where_;
};

PassCost pass_from(const Reader& owner, const char* key) {
  const Reader reader(owner.at(key), owner.name(key) + ".", {"seconds", "transient_bytes"});
  return {reader.seconds("seconds"), reader.bytes("transient_bytes")};
}

ChainOption option_from(const json& source, const std::string& where, const ChainBlock& block) {
  const Reader reader(source, where + ".", {"name", "saved_bytes", "forward", "backward"});
  ChainOption option;
  option.name = reader.text("name");
  option.saved_bytes = reader.bytes("saved_bytes");
  if (option.saved_bytes < block.output_bytes) {
    throw ConfigError(
        reader.name("saved_bytes"), fmt::format("{}", option.saved_bytes),
        fmt::format("is less than output_bytes = {}, which it contains", block.output_bytes));
  }
  option.forward = pass_from(reader, "forward");
  option.backward = pass_from(reader, "backward");
  return option;
}

ChainBlock block_from(const json& source, const std::string& where) {
  const Reader reader(source, where + ".",
                      {"name", "output_bytes", "gradient_bytes", "forward", "options"});
  ChainBlock block;
  block.name = reader.text("name");
  block.output_bytes = reader.bytes("output_bytes");
  if (reader.has("gradient_bytes")) block.gradient_bytes = reader.bytes("gradient_bytes");
  block.forward = pass_from(reader, "forward");
  const json& options = reader.list("options");
  if (options.empty()) throw ConfigError(reader.name("options"), "", "has no option");
  if (options.size() > most_block_options) {
    throw ConfigError(reader.name("options"), fmt::format("{} of them", options.size()),
                      fmt::format("are more than {}", most_block_options));
  }
  std::set<std::string> names;
  for (std::size_t k = 0; k < options.size(); ++k) {
    const std::string place = fmt::format("{}.options[{}]", where, k);
    block.options.push_back(option_from(options[k], place, block));
    if (!names.insert(block.options.back().name).second)
      throw ConfigError(place + ".name", block.options.back().name, "is the name of two options");
  }
  return block;
}

// Sums of all sizes and times must stay numbers that can be counted with.
void check_totals(const Chain& chain, const std::string& path) {
  std::int64_t total = chain.input_bytes;
  for (const auto& block : chain.blocks) {
    std::int64_t largest = 0;
    for (const auto& option : block.options) {
      largest = std::max({largest, option.saved_bytes + option.forward.transient_bytes,
                          option.saved_bytes + option.backward.transient_bytes});
    }
    total += largest + block.output_bytes + block.gradient_bytes + block.forward.transient_bytes;
  }
  if (total > most_total_bytes) {
    throw ConfigError(path + ": blocks", fmt::format("{} bytes in all", total),
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
  result.push_back(operation.block);
  if (operation.kind == ChainOperationKind::ForwardKeep) result.push_back(operation.option);
  return result;
}

ChainOperation operation_from(const json& source, const std::string& where) {
  const auto refuse = [&](const char* reason) {
    throw ConfigError(where, source.dump().substr(0, 60), reason);
  };
  if (!source.is_array() || source.empty() || !source[0].is_string())
    refuse("is no list that begins with a name");
  std::optional<ChainOperationKind> kind;
  for (const auto& entry : operation_names) {
    if (source[0] == std::string(entry.name)) kind = entry.kind;
  }
  if (!kind) refuse("is no operation of this version");
  const std::size_t count = *kind == ChainOperationKind::ForwardKeep ? 3 : 2;
  if (source.size() != count) refuse("has too few or too many numbers");
  ChainOperation operation{*kind};
  for (std::size_t n = 1; n < count; ++n) {
    if (!source[n].is_number_unsigned() || source[n].get<std::uint64_t>() > most_chain_blocks)
      refuse("has an index that is none");
    (n == 1 ? operation.block : operation.option) = source[n].get<int>();
  }
  return operation;
}

}  // namespace

json parse_json(const std::string& text, const std::string& path) {
  std::string last_key;
  std::vector<std::set<std::string>> keys;
  const auto watch = [&](int, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::object_start) {
      keys.emplace_back();
    } else if (event == json::parse_event_t::object_end) {
      keys.pop_back();
    } else if (event == json::parse_event_t::key) {
      last_key = parsed.get<std::string>();
      if (!keys.back().insert(last_key).second)
        throw ConfigError(path + ": " + last_key, "", "is given twice in one object");
    }
    return true;
  };
  try {
    return json::parse(text, watch);
  } catch (const json::exception& error) {
    const std::string reason = error.what();
    throw ConfigError(last_key.empty() ? path : path + ": at or after " + last_key, "",
                      "is no JSON: " + reason.substr(0, 300));
  }
}

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
    row["forward"] = to_json(block.forward);
    row["options"] = std::move(options);
    blocks.push_back(std::move(row));
  }
  return {{"format", "garonne.chain"},
          {"version", 1},
          {"input_bytes", chain.input_bytes},
          {"blocks", std::move(blocks)}};
}

Chain chain_from_json(const json& source, const std::string& path) {
  const Reader reader(source, path + ": ", {"format", "version", "input_bytes", "blocks"});
  reader.expect_format("garonne.chain");
  Chain chain;
  chain.input_bytes = reader.bytes("input_bytes");
  const json& blocks = reader.list("blocks");
  if (blocks.empty()) throw ConfigError(reader.name("blocks"), "", "has no block");
  if (blocks.size() > most_chain_blocks) {
    throw ConfigError(reader.name("blocks"), fmt::format("{} of them", blocks.size()),
                      fmt::format("are more than {}", most_chain_blocks));
  }
  for (std::size_t i = 0; i < blocks.size(); ++i)
    chain.blocks.push_back(block_from(blocks[i], fmt::format("{}: blocks[{}]", path, i)));
  check_totals(chain, path);
  return chain;
}

ordered_json to_json(const ChainSchedule& schedule) {
  ordered_json operations = ordered_json::array();
  for (const auto& operation : schedule.operations) operations.push_back(to_json(operation));
  return {{"format", "garonne.chain-schedule"},
          {"version", 1},
          {"algorithm", schedule.algorithm},
          {"budget_bytes", schedule.budget_bytes},
          {"peak_bytes", schedule.peak_bytes},
          {"seconds", schedule.seconds},
          {"lower_bound_seconds", schedule.lower_bound_seconds},
          {"keep_all",
           {{"seconds", schedule.keep_all.seconds}, {"peak_bytes", schedule.keep_all.peak_bytes}}},
          {"minimum_budget_bytes", schedule.minimum_budget_bytes},
          {"operations", std::move(operations)}};
}

ChainSchedule chain_schedule_from_json(const json& source, const std::string& path) {
  const Reader reader(source, path + ": ",
                      {"format", "version", "algorithm", "budget_bytes", "peak_bytes", "seconds",
                       "lower_bound_seconds", "keep_all", "minimum_budget_bytes", "operations"});
  reader.expect_format("garonne.chain-schedule");
  ChainSchedule schedule;
  schedule.algorithm = reader.text("algorithm");
  schedule.budget_bytes = reader.bytes("budget_bytes", INT64_MAX);
  schedule.peak_bytes = reader.bytes("peak_bytes", INT64_MAX);
  schedule.seconds = reader.seconds("seconds");
  schedule.lower_bound_seconds = reader.seconds("lower_bound_seconds");
  const Reader keep_all(reader.at("keep_all"), path + ": keep_all.", {"seconds", "peak_bytes"});
  schedule.keep_all.seconds = keep_all.seconds("seconds");
  schedule.keep_all.peak_bytes = keep_all.bytes("peak_bytes", INT64_MAX);
  schedule.minimum_budget_bytes = reader.bytes("minimum_budget_bytes", INT64_MAX);
  const json& operations = reader.list("operations");
  for (std::size_t n = 0; n < operations.size(); ++n) {
    schedule.operations.push_back(
        operation_from(operations[n], fmt::format("{}: operations[{}]", path, n)));
  }
  return schedule;
}

}  // namespace garonne::plan
