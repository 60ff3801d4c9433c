#include "data/tokenizers/tokenizer.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/printable.hpp"
#include "data/tokenizers/bpe_description.hpp"
#include "data/tokenizers/bpe_tokenizer.hpp"
#include "data/tokenizers/sentencepiece_tokenizer.hpp"
#include "data/tokenizers/tokenizer_folder.hpp"

namespace garonne::data {
namespace {

namespace fs = std::filesystem;

class ByteEncoder final : public TokenEncoder {
 public:
  void add(std::span<const std::byte> block, std::vector<std::uint32_t>& tokens) override {
    const std::size_t before = tokens.size();
    tokens.resize(before + block.size());
    std::transform(block.begin(), block.end(), tokens.data() + before,
                   [](std::byte byte) { return std::to_integer<std::uint32_t>(byte); });
  }
  void finish(std::vector<std::uint32_t>&) override {}
};

// One token a byte: any text, no training, no unknown token.
class ByteTokenizer final : public Tokenizer {
 public:
  std::string name() const override { return "byte"; }
  std::int64_t vocabulary() const override { return 256; }

  std::unique_ptr<TokenEncoder> encoder(int) const override {
    return std::make_unique<ByteEncoder>();
  }

  std::string decode(std::span<const std::uint32_t> tokens) const override {
    std::string text;
    text.reserve(tokens.size());
    for (const std::uint32_t token : tokens) {
      if (token > 255) {
        throw ConfigError("tokenizer", name(), fmt::format("token {} is not a byte", token));
      }
      text.push_back(static_cast<char>(token));
    }
    return text;
  }
};

constexpr const char* model_file = "tokenizer.model";

// Other programs have files of this name that are none: theirs begin with letters.
bool is_sentencepiece(const fs::path& path) {
  return std::ifstream(path, std::ios::binary).get() == 0x0A;
}

struct Row {
  const char* kind;
  const char* file;  // of the description; empty: there is none
  std::unique_ptr<Tokenizer> (*make)(std::string description, const std::string& place);
};

constexpr Row table[] = {
    {"byte", "",
     [](std::string, const std::string&) -> std::unique_ptr<Tokenizer> {
       return std::make_unique<ByteTokenizer>();
     }},
    {"bpe", "tokenizer.json",
     [](std::string description, const std::string& place) {
       return make_bpe_tokenizer(std::move(description), place, FileOwner::Run);
     }},
    {"sentencepiece", model_file,
     [](std::string description, const std::string& place) {
       return make_sentencepiece_tokenizer(std::move(description), place, FileOwner::Run);
     }},
};

const Row* find_row(const std::string& name) {
  const std::string kind = name.substr(0, name.find(':'));
  const Row* const row = std::find_if(std::begin(table), std::end(table),
                                      [&](const Row& one) { return kind == one.kind; });
  return row == std::end(table) ? nullptr : row;
}

const Row& row_of(const std::string& name) {
  if (const Row* const row = find_row(name)) return *row;
  throw ConfigError("tokenizer", printable(name),
                    fmt::format("unknown; known are: {}", fmt::join(tokenizer_names(), ", ")));
}

// Larger than one of bytes is, by whatever program it was written.
constexpr std::size_t most_bytes_of_bytes = std::size_t{1} << 17;

}  // namespace

const std::string& Tokenizer::description() const {
  static const std::string none;
  return none;
}

std::vector<std::pair<std::string, std::string>> Tokenizer::special_tokens(
    std::optional<std::uint32_t> begin, std::optional<std::uint32_t> end) const {
  std::vector<std::pair<std::string, std::string>> tokens;
  if (begin && !mark(*begin).empty()) tokens.emplace_back("bos_token", mark(*begin));
  if (end && !mark(*end).empty()) tokens.emplace_back("eos_token", mark(*end));
  return tokens;
}

std::vector<std::uint32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<std::uint32_t> tokens;
  const std::unique_ptr<TokenEncoder> encoding = encoder();
  encoding->add(std::as_bytes(std::span(text)), tokens);
  encoding->finish(tokens);
  return tokens;
}

bool same_ids(const Tokenizer& first, const Tokenizer& second) {
  return first.name() == second.name() || first.identity() == second.identity();
}

std::vector<std::string> tokenizer_names() {
  std::vector<std::string> names;
  for (const Row& row : table) names.emplace_back(row.kind);
  return names;
}

bool is_known_tokenizer(const std::string& name) {
  return find_row(name) != nullptr;
}

std::string tokenizer_file(const std::string& name) {
  return row_of(name).file;
}

std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name, std::string description,
                                          const std::string& file) {
  auto made = row_of(name).make(std::move(description), file);
  if (made->name() == name) return made;
  throw IoError(
      file, fmt::format("is the tokenizer {}, and {} is wanted", made->name(), printable(name)));
}

TokenizerFile huggingface_tokenizer(const Tokenizer& tokenizer) {
  if (tokenizer.description().empty()) return {"tokenizer.json", tokenizer_json_of_bytes(), {}};
  TokenizerFile file{tokenizer_file(tokenizer.name()), tokenizer.description(), {}};
  if (file.name == "tokenizer.json") file.left_out = leave_out_template(file.content);
  return file;
}

std::unique_ptr<Tokenizer> open_tokenizer(const std::string& given) {
  std::error_code error;
  const auto is_file = [&](const fs::path& path) { return fs::is_regular_file(path, error); };
  if (given == "byte") return make_tokenizer(given);
  fs::path path = given;
  if (fs::is_directory(path, error)) {
    const fs::path folder = path;
    for (const char* name : {"vocab.json", "tokenizer.json", "tokenizer.model"}) {
      if (is_file(folder / name) &&
          (name != std::string_view(model_file) || is_sentencepiece(folder / name)))
        path = folder / name;
    }
    if (path.filename() == model_file) expect_tokens_of_model(folder.string(), model_file);
    if (path == folder) {
      throw ConfigError("tokenizer", given,
                        "is a folder that has none of tokenizer.model, tokenizer.json and "
                        "vocab.json");
    }
  }
  if (!is_file(path)) {
    throw ConfigError("tokenizer", given,
                      "is neither \"byte\" nor a file; give a tokenizer.json, GPT-2's "
                      "vocab.json with merges.txt beside it, or a .model of SentencePiece");
  }
  const fs::path merges = path.parent_path() / "merges.txt";
  if (path.filename() == "vocab.json" || path.filename() == "merges.txt") {
    const std::string vocab = (path.parent_path() / "vocab.json").string();
    auto made =
        make_bpe_tokenizer(tokenizer_json_of(vocab, merges.string()), vocab, FileOwner::User);
    expect_same_as_whole(*made, vocab);
    return made;
  }
  if (path.extension() == ".model") {
    return make_sentencepiece_tokenizer(
        read_file_of_key("tokenizer", path.string(), "give a model of SentencePiece"),
        path.string(), FileOwner::User);
  }
  std::string json =
      read_file_of_key("tokenizer", path.string(), "give a tokenizer.json of Hugging Face");
  if (json.size() <= most_bytes_of_bytes && is_of_bytes(read_bpe(json, path.string())))
    return make_tokenizer("byte");
  return make_bpe_tokenizer(std::move(json), path.string(), FileOwner::User);
}

}  // namespace garonne::data
