#include "data/tokenizers/tokenizer.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/printable.hpp"
#include "data/tokenizers/bpe_description.hpp"
#include "data/tokenizers/bpe_tokenizer.hpp"

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
};

const Row& row_of(const std::string& name) {
  const std::string kind = name.substr(0, name.find(':'));
  for (const Row& row : table) {
    if (kind == row.kind) return row;
  }
  throw ConfigError("tokenizer", printable(name),
                    fmt::format("unknown; known are: {}", fmt::join(tokenizer_names(), ", ")));
}

}  // namespace

const std::string& Tokenizer::description() const {
  static const std::string none;
  return none;
}

std::vector<std::uint32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<std::uint32_t> tokens;
  const std::unique_ptr<TokenEncoder> encoding = encoder();
  encoding->add(std::as_bytes(std::span(text)), tokens);
  encoding->finish(tokens);
  return tokens;
}

std::vector<std::string> tokenizer_names() {
  std::vector<std::string> names;
  for (const Row& row : table) names.emplace_back(row.kind);
  return names;
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

std::string huggingface_tokenizer(const Tokenizer& tokenizer) {
  return tokenizer.description().empty() ? tokenizer_json_of_bytes() : tokenizer.description();
}

std::unique_ptr<Tokenizer> open_tokenizer(const std::string& given) {
  std::error_code error;
  const auto is_file = [&](const fs::path& path) { return fs::is_regular_file(path, error); };
  if (given == "byte") return make_tokenizer(given);
  fs::path path = given;
  if (fs::is_directory(path, error)) {
    path /= is_file(path / "tokenizer.json") ? "tokenizer.json" : "vocab.json";
    if (!is_file(path)) {
      throw ConfigError("tokenizer", given,
                        "is a folder that has neither tokenizer.json nor vocab.json");
    }
  }
  if (!is_file(path)) {
    throw ConfigError("tokenizer", given,
                      "is neither \"byte\" nor a file; give a tokenizer.json, or GPT-2's "
                      "vocab.json with merges.txt beside it");
  }
  const fs::path merges = path.parent_path() / "merges.txt";
  if (path.filename() == "vocab.json" || path.filename() == "merges.txt") {
    const std::string vocab = (path.parent_path() / "vocab.json").string();
    return make_bpe_tokenizer(tokenizer_json_of(vocab, merges.string()), vocab, FileOwner::User);
  }
  return make_bpe_tokenizer(
      read_file_of_key("tokenizer", path.string(), "give a tokenizer.json of Hugging Face"),
      path.string(), FileOwner::User);
}

}  // namespace garonne::data
