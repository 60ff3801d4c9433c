#include "plan/stage/option_cache.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/json_input.hpp"
#include "plan/chain/chain_json.hpp"

namespace garonne::plan {
namespace {

std::string name_of(const std::string& signature) {
  return fmt::format("blocks-{}.json", hash_text(signature).substr(0, 16));
}

// None of something else, or of another version.
std::optional<BlockOptions> options_from(const nlohmann::json& source, const std::string& path,
                                         const std::string& signature) {
  const JsonFile file(source, path);
  const JsonPlace root = file.root();
  if (root.key("format").text() != "garonne.block-options" || root.key("version").integer() != 1 ||
      root.key("signature").text() != signature)
    return std::nullopt;
  const Chain chain = chain_from_json(root.key("chain").json(), path + ": chain");
  BlockOptions options;
  options.block = chain.blocks.at(0);
  for (const JsonPlace& kept : root.key("kept").elements()) {
    auto& of_option = options.kept.emplace_back();
    for (const JsonPlace& task : kept.elements()) of_option.push_back(task.truth());
  }
  if (options.kept.size() != options.block.options.size())
    root.key("kept").refuse("has not one list an option");
  return options;
}

}  // namespace

std::optional<BlockOptions> load_options(TextCache* cache, const std::string& signature) {
  if (cache == nullptr) return std::nullopt;
  const std::string name = name_of(signature);
  const std::optional<std::string> text = cache->find(name);
  if (!text) return std::nullopt;
  const std::string place = cache->place_of(name);
  try {
    return options_from(parse_json(*text, place), place, signature);
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
                                       {"version", 1},
                                       {"signature", signature},
                                       {"chain", to_json(chain)},
                                       {"kept", options.kept}};
  cache->keep(name_of(signature), json.dump(1) + "\n");
}

}  // namespace garonne::plan
