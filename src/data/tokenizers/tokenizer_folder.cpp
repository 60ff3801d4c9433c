#include "data/tokenizers/tokenizer_folder.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/json_input.hpp"
#include "base/printable.hpp"
#include "data/tokenizers/bpe_tokenizer.hpp"
#include "data/tokenizers/sentencepiece_model.hpp"

namespace garonne::data {
namespace {

namespace fs = std::filesystem;

bool is_file(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

std::string bytes_of(const fs::path& path) {
  return read_file_of_key("tokenizer", path.string(), "give a folder with files that can be read");
}

class ModelTokens {
 public:
  ModelTokens(const fs::path& folder, const std::string& model) : folder_(folder), model_(model) {
    const std::string path = (folder / model).string();
    const SentencePieceModel read = read_sentencepiece(bytes_of(path), path, FileOwner::User);
    for (std::size_t id = 0; id < read.pieces.size(); ++id)
      ids_.emplace(read.pieces[id].text, static_cast<std::int64_t>(id));
  }

  void expect(const char* file, const std::string& token, std::int64_t id) const {
    const auto found = ids_.find(token);
    if (found != ids_.end() && found->second == id) return;
    throw ConfigError(
        "tokenizer", folder_.string(),
        fmt::format(
            "its {} has the token \"{}\" with the id {}, {}, so that texts would have other "
            "ids than the model was trained on; give {} to do without such tokens, or a "
            "folder without {}",
            file, printable(token), id,
            found == ids_.end() ? fmt::format("which {} does not have", model_)
                                : fmt::format("and {} has it as {}", model_, found->second),
            (folder_ / model_).string(), file));
  }

 private:
  fs::path folder_;
  std::string model_;
  std::unordered_map<std::string, std::int64_t> ids_;
};

}  // namespace

void expect_tokens_of_model(const std::string& folder, const std::string& model) {
  const fs::path added = fs::path(folder) / "added_tokens.json";
  const fs::path whole = fs::path(folder) / "tokenizer.json";
  if (!is_file(added) && !is_file(whole)) return;
  const ModelTokens tokens(folder, model);
  if (is_file(added)) {
    const std::string name = added.string();
    const nlohmann::json parsed = parse_json(bytes_of(added), name);
    const JsonFile opened(parsed, name);
    for (const auto& [token, id] : opened.root().members())
      tokens.expect("added_tokens.json", token, id.integer());
  }
  if (is_file(whole)) {
    const std::string name = whole.string();
    const nlohmann::json parsed = parse_json(bytes_of(whole), name);
    const JsonFile opened(parsed, name);
    const JsonPlace root = opened.root();
    root.expect_object();
    if (!root.has("added_tokens") || root.key("added_tokens").json().is_null()) return;
    for (const JsonPlace& entry : root.key("added_tokens").elements())
      tokens.expect("tokenizer.json", entry.key("content").text(), entry.key("id").integer());
  }
}

void expect_same_as_whole(const Tokenizer& made, const std::string& vocab) {
  const fs::path whole = fs::path(vocab).parent_path() / "tokenizer.json";
  if (!is_file(whole)) return;
  const auto refuse = [&](const std::string& why) {
    throw ConfigError("tokenizer", vocab,
                      fmt::format("has {} beside it, which {}; give that, or the two files in a "
                                  "folder without it",
                                  whole.string(), why));
  };
  std::unique_ptr<Tokenizer> other;
  try {
    other = make_bpe_tokenizer(bytes_of(whole), whole.string(), FileOwner::User);
  } catch (const ConfigError& error) {
    refuse(fmt::format("may make other ids and cannot be taken ({})", error.what()));
  }
  if (!same_ids(made, *other)) refuse("makes other ids of the same text");
}

}  // namespace garonne::data
