#include "data/tokenizers/sentencepiece_tokenizer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "data/tokenizers/sentencepiece_encoder.hpp"

namespace garonne::data {
namespace {

using Kind = SentencePiece::Kind;

class SentencePieceTokenizer final : public Tokenizer {
 public:
  SentencePieceTokenizer(std::string bytes, SentencePieceModel model)
      : name_(fmt::format("sentencepiece:{}", hash_text(bytes).substr(0, 16))),
        bytes_(std::move(bytes)),
        rules_(std::move(model)),
        begin_(control(rules_.model.begin_piece)),
        end_(control(rules_.model.end_piece)) {}

  std::string name() const override { return name_; }
  std::int64_t vocabulary() const override {
    return static_cast<std::int64_t>(rules_.model.pieces.size());
  }

  std::unique_ptr<TokenEncoder> encoder(int threads) const override {
    return std::make_unique<SentencePieceEncoder>(rules_, name_, threads);
  }

  // The space in front of a text is left where it is: what follows other tokens begins with one,
  // too.
  std::string decode(std::span<const std::uint32_t> tokens) const override {
    std::string text;
    for (const std::uint32_t token : tokens) {
      if (token >= rules_.model.pieces.size())
        throw ConfigError("tokenizer", name_, fmt::format("token {} is not one of its", token));
      append_text(rules_.model.pieces[token], text);
    }
    return text;
  }

  std::optional<std::uint32_t> begin_of_text() const override { return begin_; }
  std::optional<std::uint32_t> end_of_text() const override { return end_; }

  // One that asks SentencePiece itself makes its ids of every model, but shows bytes as their
  // pieces are written; that of Llama shows them as text, and makes the ids of models like Llama's.
  std::string transformers_class() const override {
    return is_like_llama() ? "LlamaTokenizer" : "SentencePieceBackend";
  }
  std::string transformers_difference() const override {
    if (is_like_llama()) {
      return "leaves out a space that a text begins with, and makes other ids of such a text than "
             "SentencePiece";
    }
    if (rules_.model.byte_fallback)
      return "makes the ids of SentencePiece, and decodes tokens of bytes as <0x0A>";
    return {};
  }

  std::string mark(std::uint32_t token) const override {
    const auto& pieces = rules_.model.pieces;
    return token < pieces.size() && pieces[token].kind == Kind::Control ? pieces[token].text
                                                                        : std::string();
  }

  std::vector<std::pair<std::string, std::string>> special_tokens(
      std::optional<std::uint32_t> begin, std::optional<std::uint32_t> end) const override {
    auto tokens = Tokenizer::special_tokens(begin, end);
    tokens.emplace_back("unk_token", rules_.model.pieces[rules_.model.unknown].text);
    return tokens;
  }

  const std::string& description() const override { return bytes_; }

 private:
  std::optional<std::uint32_t> control(const std::string& text) const {
    const auto found = rules_.reserved.find(text);
    if (found == rules_.reserved.end() || rules_.model.pieces[found->second].kind != Kind::Control)
      return std::nullopt;
    return found->second;
  }

  // Of what transformers knows that models of Llama have.
  bool is_like_llama() const {
    const SentencePieceModel& model = rules_.model;
    const bool has_symbols =
        std::any_of(model.pieces.begin(), model.pieces.end(),
                    [](const SentencePiece& piece) { return piece.kind == Kind::UserDefined; });
    return model.algorithm == SentencePieceModel::Algorithm::Bpe && model.byte_fallback &&
           model.rules.empty() && model.dummy_prefix && !model.space_behind &&
           !model.single_spaces && model.visible_spaces && !has_symbols;
  }

  void append_text(const SentencePiece& piece, std::string& text) const {
    if (piece.kind == Kind::Control) return;
    if (piece.kind == Kind::Unknown) {
      text += rules_.model.unknown_text;
    } else if (piece.kind == Kind::Byte) {
      text += static_cast<char>(*byte_of_piece(piece.text));
    } else {
      std::string_view left = piece.text;
      for (std::size_t space = left.find(visible_space); space != std::string_view::npos;
           space = left.find(visible_space)) {
        text += left.substr(0, space);
        text += ' ';
        left.remove_prefix(space + visible_space.size());
      }
      text += left;
    }
  }

  std::string name_;
  std::string bytes_;
  SentencePieceRules rules_;
  std::optional<std::uint32_t> begin_;
  std::optional<std::uint32_t> end_;
};

}  // namespace

std::unique_ptr<Tokenizer> make_sentencepiece_tokenizer(std::string bytes, const std::string& file,
                                                        FileOwner owner) {
  SentencePieceModel model = read_sentencepiece(bytes, file, owner);
  return std::make_unique<SentencePieceTokenizer>(std::move(bytes), std::move(model));
}

}  // namespace garonne::data
