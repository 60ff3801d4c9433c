#include "data/tokenizers/bpe_tokenizer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/printable.hpp"
#include "data/tokenizers/bpe_encoder.hpp"
#include "data/tokenizers/byte_alphabet.hpp"

namespace garonne::data {
namespace {

// What models end documents with: GPT-2 and Qwen, Llama 3, and those that come from SentencePiece.
constexpr const char* ends_of_text[] = {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>"};
// And begin texts with, where that is another token.
constexpr const char* begins_of_text[] = {"<|begin_of_text|>", "<s>", "<bos>"};

using Ids = std::unordered_map<std::string, std::uint32_t>;

class BpeTokenizer final : public Tokenizer {
 public:
  BpeTokenizer(std::string json, std::vector<std::optional<std::string>> bytes,
               std::map<std::uint32_t, std::string> marks,
               std::optional<std::uint32_t> begin_of_text, std::optional<std::uint32_t> end_of_text,
               BpeRules rules, std::string file, std::string refused)
      : name_(fmt::format("bpe:{}", hash_text(json).substr(0, 16))),
        json_(std::move(json)),
        bytes_(std::move(bytes)),
        marks_(std::move(marks)),
        begin_of_text_(begin_of_text),
        end_of_text_(end_of_text),
        rules_(std::move(rules)),
        file_(std::move(file)),
        refused_(std::move(refused)) {}

  std::string name() const override { return name_; }
  std::int64_t vocabulary() const override { return static_cast<std::int64_t>(bytes_.size()); }

  std::unique_ptr<TokenEncoder> encoder(int threads) const override {
    if (!refused_.empty()) {
      throw IoError(file_, fmt::format("is of a tokenizer that cannot cut texts: {}; give another "
                                       "one that makes its ids with --tokenizer, or ids of tokens "
                                       "with --ids",
                                       refused_));
    }
    return std::make_unique<BpeEncoder>(rules_, threads);
  }

  std::string decode(std::span<const std::uint32_t> tokens) const override {
    std::string text;
    for (const std::uint32_t token : tokens) {
      if (!has(token))
        throw ConfigError("tokenizer", name_, fmt::format("token {} is not one of its", token));
      text += *bytes_[token];
    }
    return text;
  }

  bool has(std::uint32_t token) const override { return token < bytes_.size() && bytes_[token]; }
  std::optional<std::uint32_t> end_of_text() const override { return end_of_text_; }
  std::optional<std::uint32_t> begin_of_text() const override {
    return begin_of_text_ ? begin_of_text_ : end_of_text_;
  }
  std::string mark(std::uint32_t token) const override {
    const auto found = marks_.find(token);
    return found == marks_.end() ? std::string() : found->second;
  }
  const std::string& description() const override { return json_; }
  std::string transformers_difference() const override {
    try {
      read_bpe(json_, "tokenizer.json", FileOwner::User);
      return {};
    } catch (const ConfigError& refused) {
      return fmt::format("reads {} otherwise, and makes other ids of some texts", refused.key());
    }
  }
  std::string identity() const override {
    return fmt::format("bpe {} {}", end_of_text_ ? fmt::format("{}", *end_of_text_) : "-",
                       hash_of_rules(read_bpe(json_, name_, FileOwner::Run)));
  }

 private:
  std::string name_;
  std::string json_;
  std::vector<std::optional<std::string>> bytes_;  // by token
  std::map<std::uint32_t, std::string> marks_;     // added tokens
  std::optional<std::uint32_t> begin_of_text_;
  std::optional<std::uint32_t> end_of_text_;
  BpeRules rules_;
  std::string file_;     // that it was made of
  std::string refused_;  // why it cuts no texts; else empty
};

class Maker {
 public:
  Maker(const BpeDescription& read, const std::string& file, FileOwner owner)
      : read_(read), file_(file), owner_(owner) {
    for (const auto& [word, id] : read.words) ids_.emplace(word, id);
  }

  std::vector<std::optional<std::string>> bytes() const {
    std::size_t count = 0;
    for (const auto& [word, id] : read_.words) count = std::max<std::size_t>(count, id + 1);
    for (const AddedToken& token : read_.added) count = std::max<std::size_t>(count, token.id + 1);
    // Ids that nothing has are few; a file may say anything.
    const std::size_t most = 16 * (read_.words.size() + read_.added.size()) + 65536;
    if (count > most)
      refuse("model.vocab", fmt::format("has the id {} among {} tokens", count - 1,
                                        read_.words.size() + read_.added.size()));
    std::vector<std::optional<std::string>> bytes(count);
    for (const auto& [word, id] : read_.words) {
      if (bytes[id]) refuse("model.vocab", fmt::format("has the id {} twice", id));
      bytes[id] = from_byte_letters(word).value_or(word);
    }
    for (const AddedToken& token : read_.added) bytes[token.id] = token.content;
    return bytes;
  }

  MergeTable merges() const {
    std::array<std::uint32_t, 256> of_bytes{};
    for (unsigned byte = 0; byte < 256; ++byte) {
      const char text = static_cast<char>(byte);
      of_bytes[byte] = id_of(to_byte_letters({&text, 1}), "model.vocab");
    }
    std::vector<MergeTable::Merge> merges;
    for (std::size_t i = 0; i < read_.merges.size(); ++i) {
      const auto& [left, right] = read_.merges[i];
      const std::string key = fmt::format("model.merges[{}]", i);
      merges.push_back({id_of(left, key), id_of(right, key), id_of(left + right, key)});
    }
    Ids whole;
    if (read_.whole_words) {
      for (const auto& [word, id] : read_.words) {
        if (auto bytes = from_byte_letters(word)) whole.emplace(std::move(*bytes), id);
      }
    }
    return MergeTable(of_bytes, merges, std::move(whole));
  }

  std::vector<AddedToken> added(bool normalised) const {
    std::vector<AddedToken> tokens;
    for (const AddedToken& token : read_.added) {
      if (token.normalised != normalised) continue;
      tokens.push_back(token);
      tokens.back().content = searched_content(token, read_);
    }
    return tokens;
  }

  std::map<std::uint32_t, std::string> marks() const {
    std::map<std::uint32_t, std::string> marks;
    for (const AddedToken& token : read_.added) marks[token.id] = token.content;
    return marks;
  }

  // The first of these that is an added token.
  std::optional<std::uint32_t> added_of(std::span<const char* const> contents) const {
    for (const char* content : contents) {
      for (const AddedToken& token : read_.added) {
        if (token.content == content) return token.id;
      }
    }
    return std::nullopt;
  }

 private:
  [[noreturn]] void refuse(const std::string& key, const std::string& why) const {
    refuse_value(owner_, file_, key, "", why);
  }

  std::uint32_t id_of(const std::string& word, const std::string& key) const {
    const auto found = ids_.find(word);
    if (found == ids_.end())
      refuse(key, fmt::format("\"{}\" is no token of the vocabulary", printable(word)));
    return found->second;
  }

  const BpeDescription& read_;
  const std::string& file_;
  FileOwner owner_;
  Ids ids_;
};

}  // namespace

std::unique_ptr<Tokenizer> make_bpe_tokenizer(std::string json, const std::string& file,
                                              FileOwner owner) {
  const BpeDescription read = read_bpe(json, file, owner);
  const Maker maker(read, file, owner);
  BpeRules rules{.splits = {},
                 .leading_space = read.leading_space,
                 .normal_form_c = read.normal_form_c,
                 .added = AddedTokenSearch(maker.added(/*normalised=*/false)),
                 .normalised_added = AddedTokenSearch(maker.added(/*normalised=*/true)),
                 .merges = maker.merges()};
  std::string refused;
  for (const SplitRule& split : read.splits) {
    try {
      rules.splits.push_back({Pattern(split.pattern), split.keeps_rest});
    } catch (const ConfigError& error) {
      if (owner == FileOwner::User) throw;
      refused = error.what();
    }
  }
  return std::make_unique<BpeTokenizer>(
      std::move(json), maker.bytes(), maker.marks(), maker.added_of(begins_of_text),
      maker.added_of(ends_of_text), std::move(rules), file, std::move(refused));
}

}  // namespace garonne::data
