// What SentencePiece makes of a text before it is cut into pieces, and where a text may be cut into
// sections so that the pieces of the sections are those of the text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>

#include "data/tokenizers/byte_trie.hpp"
#include "data/tokenizers/sentencepiece_model.hpp"

namespace garonne::data {

// Two characters that stand one after the other, as one number.
constexpr std::uint64_t neighbours(char32_t left, char32_t right) {
  return (std::uint64_t{left} << 32) | right;
}

// A character at the start of a text, by the rules of UTF-8; a byte that begins none is U+FFFD.
struct FirstCharacter {
  char32_t value = 0;
  std::size_t bytes = 1;
  bool valid = false;
};
FirstCharacter first_character(std::string_view text);

class SentencePieceNormaliser {
 public:
  // The model has to outlive it.
  explicit SentencePieceNormaliser(const SentencePieceModel& model);

  // A section of a text that begins, or ends, the text; or lies between two cuts.
  struct Ends {
    bool begins = true;
    bool ends = true;
  };
  void append(std::string_view section, Ends ends, std::string& normal) const;

  // The bytes of the first character of a normal text, or of the symbol that it begins with and
  // that stays whole.
  std::size_t first_symbol(std::string_view normal, bool& whole) const;

  // Whether pieces of a normal text may have these neighbours in them.
  bool joined(char32_t left, char32_t right) const {
    return joined_.count(neighbours(left, right)) > 0;
  }

  // The first place at or after `from` at which a text may be cut. None before the last bytes of a
  // text that is not `complete`, which what follows could change.
  std::optional<std::size_t> find_cut(std::string_view text, std::size_t from, bool complete) const;

 private:
  struct Prefix {
    std::string_view text;
    std::size_t bytes = 0;
  };
  // What the start of a text becomes, and how much of it that is.
  Prefix prefix(std::string_view text) const;
  bool may_cut(std::string_view text, std::size_t at) const;

  const SentencePieceModel& model_;
  ByteTrie rules_;                            // to a place in the replacements
  ByteTrie symbols_;                          // of users; never taken apart
  std::unordered_set<std::uint64_t> joined_;  // neighbours in pieces
  std::unordered_set<std::uint64_t> raw_;     // neighbours in what rules and symbols look for
  std::unordered_set<char32_t> changed_;      // last characters of what rules look for
  std::unordered_set<char32_t> single_;       // pieces of one character
  std::size_t lookahead_ = 4;
};

}  // namespace garonne::data
