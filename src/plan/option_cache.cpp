#include "plan/option_cache.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "plan/chain/chain_json.hpp"

namespace garonne::plan {

std::string OptionCache::path_of(const std::string& signature) const {
  return fmt::format("{}/blocks-{}.json", folder_, hash_text(signature).substr(0, 16));
}

std::optional<BlockOptions> OptionCache::load(const std::string& signature) const {
  if (folder_.empty()) return std::nullopt;
  const std::string path = path_of(signature);
  std::ifstream file(path);
  if (!file) return std::nullopt;
  const auto json = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  try {
    if (json.is_discarded() || json.at("format") != "garonne.block-options" ||
        json.at("version") != 1 || json.at("signature") != signature) {
      return std::nullopt;
    }
    const Chain chain = chain_from_json(json.at("chain"), path);
    BlockOptions options;
    options.block = chain.blocks.at(0);
    options.kept = json.at("kept").get<std::vector<std::vector<bool>>>();
    if (options.kept.size() != options.block.options.size()) return std::nullopt;
    return options;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  } catch (const ConfigError&) {
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
  const std::string path = path_of(signature);
  const std::string partial = path + fmt::format(".{}", getpid());
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  {
    std::ofstream file(partial);
    file << json.dump(1) << '\n';
    if (!file.flush()) return;
  }
  std::filesystem::rename(partial, path, error);
}

}  // namespace garonne::plan
