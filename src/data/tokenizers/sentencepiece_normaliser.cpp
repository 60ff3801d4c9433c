#include "data/tokenizers/sentencepiece_normaliser.hpp"

#include <algorithm>
#include <functional>

namespace garonne::data {
namespace {

using Kind = SentencePiece::Kind;

constexpr char32_t replacement = 0xFFFD;
constexpr std::string_view replacement_bytes = "\xEF\xBF\xBD";
constexpr char32_t visible_space_character = 0x2581;

void for_neighbours(std::string_view text,
                    const std::function<void(char32_t left, char32_t right)>& handle) {
  char32_t before = 0;
  for (std::size_t at = 0; at < text.size();) {
    const FirstCharacter here = first_character(text.substr(at));
    if (at > 0) handle(before, here.value);
    before = here.value;
    at += here.bytes;
  }
}

// The character that ends at `end`; nothing where no valid one does.
std::optional<char32_t> last_character(std::string_view text) {
  for (std::size_t bytes = 1; bytes <= std::min<std::size_t>(4, text.size()); ++bytes) {
    const FirstCharacter last = first_character(text.substr(text.size() - bytes));
    if (last.valid && last.bytes == bytes) return last.value;
  }
  return std::nullopt;
}

char32_t space_made_visible(char32_t character) {
  return character == ' ' ? visible_space_character : character;
}

}  // namespace

FirstCharacter first_character(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const auto follows = [&](std::size_t i) { return i < text.size() && (byte(i) & 0xC0U) == 0x80U; };
  const auto bits = [&](std::size_t i) { return static_cast<char32_t>(byte(i) & 0x3FU); };
  if (text.empty()) return {};
  const unsigned char first = byte(0);
  if (first < 0x80) return {first, 1, true};
  if ((first & 0xE0U) == 0xC0U && follows(1)) {
    const char32_t value = (char32_t{first & 0x1FU} << 6) | bits(1);
    if (value >= 0x80) return {value, 2, true};
  } else if ((first & 0xF0U) == 0xE0U && follows(1) && follows(2)) {
    const char32_t value = (char32_t{first & 0x0FU} << 12) | (bits(1) << 6) | bits(2);
    if (value >= 0x800 && (value < 0xD800 || value > 0xDFFF)) return {value, 3, true};
  } else if ((first & 0xF8U) == 0xF0U && follows(1) && follows(2) && follows(3)) {
    const char32_t value =
        (char32_t{first & 0x07U} << 18) | (bits(1) << 12) | (bits(2) << 6) | bits(3);
    if (value >= 0x10000 && value <= 0x10FFFF) return {value, 4, true};
  }
  return {replacement, 1, false};
}

SentencePieceNormaliser::SentencePieceNormaliser(const SentencePieceModel& model) : model_(model) {
  const auto look_for = [&](std::string_view text) {
    for_neighbours(text,
                   [&](char32_t left, char32_t right) { raw_.insert(neighbours(left, right)); });
  };
  for (const SentencePieceRule& rule : model.rules) {
    rules_.insert(rule.from, rule.to);
    look_for(rule.from);
    // One that ends amid a character takes part in all that such a byte could be of.
    changed_.insert(last_character(rule.from).value_or(replacement));
  }
  for (std::size_t i = 0; i < model.pieces.size(); ++i) {
    const SentencePiece& piece = model.pieces[i];
    if (piece.kind != Kind::Normal && piece.kind != Kind::UserDefined && piece.kind != Kind::Unused)
      continue;
    for_neighbours(piece.text, [&](char32_t left, char32_t right) {
      joined_.insert(neighbours(space_made_visible(left), space_made_visible(right)));
    });
    const FirstCharacter first = first_character(piece.text);
    if (piece.kind == Kind::Normal && first.valid && first.bytes == piece.text.size())
      single_.insert(space_made_visible(first.value));
    if (piece.kind != Kind::UserDefined) continue;
    symbols_.insert(piece.text, static_cast<std::uint32_t>(i));
    look_for(piece.text);
  }
  lookahead_ = std::max({lookahead_, rules_.longest_bytes(), symbols_.longest_bytes()});
}

SentencePieceNormaliser::Prefix SentencePieceNormaliser::prefix(std::string_view text) const {
  if (const auto symbol = symbols_.longest(text))
    return {text.substr(0, symbol->bytes), symbol->bytes};
  if (const auto rule = rules_.longest(text))
    return {model_.replacements.c_str() + rule->value, rule->bytes};
  const FirstCharacter first = first_character(text);
  return {first.valid ? text.substr(0, first.bytes) : replacement_bytes, first.bytes};
}

void SentencePieceNormaliser::append(std::string_view section, Ends ends,
                                     std::string& normal) const {
  const std::string_view space = model_.visible_spaces ? visible_space : std::string_view(" ");
  std::string_view left = section;
  if (ends.begins && model_.single_spaces) {
    while (!left.empty()) {
      const Prefix first = prefix(left);
      if (first.text != " ") break;
      left.remove_prefix(first.bytes);
    }
  }
  if (ends.begins && left.empty()) return;
  const std::size_t begin = normal.size();
  if (ends.begins && model_.dummy_prefix && !model_.space_behind) normal += space;
  bool after_space = ends.begins && model_.single_spaces;
  while (!left.empty()) {
    const Prefix first = prefix(left);
    std::string_view text = first.text;
    while (after_space && !text.empty() && text[0] == ' ') text.remove_prefix(1);
    for (const char letter : text) {
      if (letter == ' ') {
        normal += space;
      } else {
        normal += letter;
      }
    }
    if (!text.empty()) after_space = text.back() == ' ';
    if (!model_.single_spaces) after_space = false;
    left.remove_prefix(first.bytes);
  }
  if (!ends.ends) return;
  if (model_.single_spaces) {
    while (normal.size() - begin >= space.size() &&
           std::string_view(normal).substr(normal.size() - space.size()) == space)
      normal.resize(normal.size() - space.size());
  }
  if (model_.dummy_prefix && model_.space_behind) normal += space;
}

std::size_t SentencePieceNormaliser::first_symbol(std::string_view normal, bool& whole) const {
  const auto symbol = symbols_.longest(normal);
  whole = symbol.has_value();
  return symbol ? symbol->bytes : first_character(normal).bytes;
}

bool SentencePieceNormaliser::may_cut(std::string_view text, std::size_t at) const {
  const auto left = last_character(text.substr(0, at));
  const FirstCharacter right = first_character(text.substr(at));
  if (!left || !right.valid) return false;
  // What stands before the cut is to be as it is, no space, and no part of what is not known: that
  // would be one token with what follows.
  if (*left == ' ' || *left == visible_space_character || changed_.count(*left) > 0) return false;
  if (!model_.byte_fallback && single_.count(*left) == 0) return false;
  if (raw_.count(neighbours(*left, right.value)) > 0) return false;
  const Prefix made = prefix(text.substr(at));
  if (made.text.empty()) return false;
  const char32_t next = first_character(made.text).value;
  return !joined(*left, space_made_visible(next));
}

std::optional<std::size_t> SentencePieceNormaliser::find_cut(std::string_view text,
                                                             std::size_t from,
                                                             bool complete) const {
  for (std::size_t at = std::max<std::size_t>(from, 1); at < text.size(); ++at) {
    if (!complete && at + lookahead_ > text.size()) return std::nullopt;
    if (may_cut(text, at)) return at;
  }
  return std::nullopt;
}

}  // namespace garonne::data
