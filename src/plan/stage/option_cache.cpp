#include "plan/stage/option_cache.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/cache_folder.hpp"
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

std::optional<BlockOptions> OptionCache::load(const std::string& signature) const {
  const std::string name = name_of(signature);
  const std::optional<std::string> text = read_cache_file(folder_, name);
  if (!text) return std::nullopt;
  const std::string path = folder_ + "/" + name;
  try {
    return options_from(parse_json(*text, path), path, signature);
  } catch (const ConfigError& damaged) {
    fmt::print(stderr, "warning: {}; it is ignored and written anew\n", damaged.what());
    return std::nullopt;
  }
}

void OptionCache::store(const std::string& signature, const BlockOptions& options) const {
  if (folder_.empty()) return;
  Chain chain;
  chain.blocks = {options.block};
  chain.blocks[0].name = "block";
  const nlohmann::ordered_json json = {{"format", "garonne.block-options"},
                                       {"version", 1},
                                       {"signature", signature},
                                       {"chain", to_json(chain)},
                                       {"kept", options.kept}};
  write_cache_file(folder_, name_of(signature), json.dump(1) + "\n");
}

}  // namespace garonne::plan
