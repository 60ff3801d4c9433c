#include "plan/stage/option_cache.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/json_input.hpp"
#include "plan/chain/chain_json.hpp"

namespace garonne::plan {
namespace {

// Counts what blocks are solved by: options of another version are other ones.
constexpr int options_version = 2;

std::string name_of(const std::string& signature) {
  return fmt::format("blocks-{}.json", hash_text(signature).substr(0, 16));
}

// False is made again, true is kept; in a further way it is the number of that.
nlohmann::ordered_json to_json(const BlockOptions& options) {
  nlohmann::ordered_json result = nlohmann::ordered_json::array();
  for (const auto& by_node : options.fates) {
    nlohmann::ordered_json& of_option = result.emplace_back(nlohmann::ordered_json::array());
    for (const RecordFate fate : by_node) {
      if (fate.fate == Fate::Keep && fate.option > 0)
        of_option.push_back(fate.option);
      else
        of_option.push_back(fate.fate == Fate::Keep);
    }
  }
  return result;
}

RecordFate fate_from(const JsonPlace& place, const std::vector<int>& keep_options) {
  if (!place.json().is_number()) return {place.truth() ? Fate::Keep : Fate::Recompute};
  const int option = static_cast<int>(place.integer(1, INT32_MAX));
  if (std::find(keep_options.begin(), keep_options.end(), option) == keep_options.end())
    place.refuse("is no way in which the node can be kept");
  return {Fate::Keep, option};
}

// None of something else, or of another version.
std::optional<BlockOptions> options_from(const nlohmann::json& source, const std::string& path,
                                         const std::string& signature,
                                         const std::vector<std::vector<int>>& keep_options) {
  const JsonFile file(source, path);
  const JsonPlace root = file.root();
  if (root.key("format").text() != "garonne.block-options" ||
      root.key("version").integer() != options_version || root.key("signature").text() != signature)
    return std::nullopt;
  const Chain chain = chain_from_json(root.key("chain").json(), path + ": chain");
  BlockOptions options;
  options.block = chain.blocks.at(0);
  for (const JsonPlace& kept : root.key("kept").elements()) {
    const std::vector<JsonPlace> nodes = kept.elements();
    if (nodes.size() != keep_options.size()) kept.refuse("has not one entry a node");
    auto& of_option = options.fates.emplace_back();
    for (std::size_t n = 0; n < nodes.size(); ++n)
      of_option.push_back(fate_from(nodes[n], keep_options[n]));
  }
  if (options.fates.size() != options.block.options.size())
    root.key("kept").refuse("has not one list an option");
  return options;
}

}  // namespace

std::optional<BlockOptions> load_options(TextCache* cache, const std::string& signature,
                                         const std::vector<std::vector<int>>& keep_options) {
  if (cache == nullptr) return std::nullopt;
  const std::string name = name_of(signature);
  const std::optional<std::string> text = cache->find(name);
  if (!text) return std::nullopt;
  const std::string place = cache->place_of(name);
  try {
    return options_from(parse_json(*text, place), place, signature, keep_options);
  } catch (const ConfigError& damaged) {
    cache->say_damaged(damaged.what());
    return std::nullopt;
  }
}

void store_options(TextCache* cache, const std::string& signature, const BlockOptions& options) {
  if (cache == nullptr) return;
  Chain chain;
  chain.blocks = {options.block};
  chain.blocks[0].name = "block";
  const nlohmann::ordered_json json = {{"format", "garonne.block-options"},
                                       {"version", options_version},
                                       {"signature", signature},
                                       {"chain", to_json(chain)},
                                       {"kept", to_json(options)}};
  cache->keep(name_of(signature), json.dump(1) + "\n");
}

}  // namespace garonne::plan
