// What a tokenizer.json of Hugging Face says, where it is a byte-level BPE.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/json_input.hpp"
#include "data/tokenizers/added_tokens.hpp"

namespace garonne::data {

// How a text is cut into words, within which merges stay.
struct SplitRule {
  std::string pattern;
  // What lies between two matches is a word, too; else it is left out.
  bool keeps_rest = true;
};

struct BpeDescription {
  std::vector<std::pair<std::string, std::uint32_t>> words;  // in the letters of bytes, and its id
  std::vector<std::pair<std::string, std::string>> merges;   // the earliest first
  bool whole_words = false;                                  // a word that is a token is that token
  std::vector<SplitRule> splits;  // each cuts what those before it have left
  bool leading_space = false;     // a text that begins with none gets one
  bool normal_form_c = false;
  std::vector<AddedToken> added;
};

// Throws, as `owner` says and with the key, for what is no such tokenizer: another model, dropout,
// subword marks, a normaliser but NFC, a pre-tokenizer other than Split, Digits and ByteLevel. A
// user's is refused, too, for added tokens that Hugging Face gives other ids or finds elsewhere;
// that of a run or a tokens file is not: its tokens have been made.
BpeDescription read_bpe(const std::string& json, const std::string& file,
                        FileOwner owner = FileOwner::User);

// What a text is searched for: the content, or its normal form where that of the text is searched.
std::string searched_content(const AddedToken& token, const BpeDescription& description);

// Equal for descriptions that make the same ids of every text, however their files were written.
std::string hash_of_rules(const BpeDescription& description);

// Takes out of a tokenizer.json that read_bpe has read what puts tokens around texts: of its
// post_processor nothing but ByteLevel stays. Returns the types of what it took, with commas
// between; where that is nothing the text stays as it is, to the byte.
std::string leave_out_template(std::string& json);

// GPT-2's two files as a tokenizer.json: with its expression, and <|endoftext|> as a special token
// where the vocabulary has it. ConfigError.
std::string tokenizer_json_of(const std::string& vocab_file, const std::string& merges_file);

// Whether it makes token b of byte b, and nothing else, of every text.
bool is_of_bytes(const BpeDescription& description);

// One token a byte, as a tokenizer.json: no merges, so that the letter of a byte is what is left.
std::string tokenizer_json_of_bytes();

}  // namespace garonne::data
