// Models of SentencePiece, unigram and BPE, with its ids.
#pragma once

#include <memory>
#include <string>

#include "base/json_input.hpp"
#include "data/tokenizers/tokenizer.hpp"

namespace garonne::data {

// `bytes`: a model file of SentencePiece, as read_sentencepiece reads it. A text of up to 64 KiB
// has the tokens that SentencePiece gives it as a whole. One that is longer is cut into sections
// where no piece can lie across: for BPE that changes nothing; sums of scores of a unigram model
// begin anew in each. Bytes that are no UTF-8 count as U+FFFD each, as there. No token is put in
// front of a text or behind it.
std::unique_ptr<Tokenizer> make_sentencepiece_tokenizer(std::string bytes, const std::string& file,
                                                        FileOwner owner);

}  // namespace garonne::data
