// A model file of SentencePiece (Kudo and Richardson 2018): a ModelProto in the wire format of
// protocol buffers, of which this is what encoding needs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_input.hpp"

namespace garonne::data {

struct SentencePiece {
  // Numbers as in the file.
  enum class Kind { Normal = 1, Unknown = 2, Control = 3, UserDefined = 4, Unused = 5, Byte = 6 };
  std::string text;
  float score = 0;  // unigram: a logarithm of a probability; BPE: merges with more come first
  Kind kind = Kind::Normal;
};

// What a text is changed by before it is cut: the longest `from` that it begins with becomes the
// text at `to` of SentencePieceModel::replacements, which ends before a zero byte.
struct SentencePieceRule {
  std::string from;
  std::uint32_t to = 0;
};

struct SentencePieceModel {
  enum class Algorithm { Unigram = 1, Bpe = 2 };
  Algorithm algorithm = Algorithm::Unigram;
  std::vector<SentencePiece> pieces;  // by token
  std::vector<SentencePieceRule> rules;
  std::string replacements;
  bool byte_fallback = false;  // what no piece has becomes the tokens of its bytes
  bool dummy_prefix = true;    // a space is put in front of a text, or behind it:
  bool space_behind = false;   // spaces belong to the word before them
  bool single_spaces = true;   // spaces at both ends go, and one of several is left
  bool visible_spaces = true;  // a space becomes U+2581
  std::uint32_t unknown = 0;   // the token of what no piece has
  std::string begin_piece = "<s>";
  std::string end_piece = "</s>";
  std::string unknown_text = " \xE2\x81\x87 ";
};

// U+2581, which stands for a space in pieces.
inline constexpr std::string_view visible_space = "\xE2\x96\x81";

// The byte that a piece such as "<0x0A>" stands for.
std::optional<unsigned char> byte_of_piece(std::string_view text);

// Throws, as `owner` says, with the place in the file: what is damaged, breaks a rule of the
// format, or has another algorithm than the two.
SentencePieceModel read_sentencepiece(std::string_view bytes, const std::string& file,
                                      FileOwner owner);

}  // namespace garonne::data
