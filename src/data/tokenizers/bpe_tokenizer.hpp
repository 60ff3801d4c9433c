// Byte-level BPE with the ids of Hugging Face's tokenizers.
#pragma once

#include <memory>
#include <string>

#include "data/tokenizers/bpe_description.hpp"
#include "data/tokenizers/tokenizer.hpp"

namespace garonne::data {

// `json`: a tokenizer.json as read_bpe reads it. Bytes that are no UTF-8 count as U+FFFD
// (unicode_text.hpp). Tokens that a template puts around texts, as a first one, are not added.
// Throws as read_bpe does, also for merges of unknown tokens and where a byte has no token.
// An expression that Pattern refuses is refused where a user gives it; the tokenizer of a run or a
// tokens file is still made, and its encoder() throws IoError.
std::unique_ptr<Tokenizer> make_bpe_tokenizer(std::string json, const std::string& file,
                                              FileOwner owner);

}  // namespace garonne::data
