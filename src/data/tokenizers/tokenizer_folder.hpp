// Files of one folder that each say something about a tokenizer: whether they agree.
#pragma once

#include <string>

#include "data/tokenizers/tokenizer.hpp"

namespace garonne::data {

// ConfigError (key "tokenizer") where the added_tokens.json or the tokenizer.json of `folder` names
// added tokens that its model of SentencePiece, the file `model`, lacks or has under other ids.
void expect_tokens_of_model(const std::string& folder, const std::string& model);

// ConfigError (key "tokenizer") where a tokenizer.json stands beside the file `vocab`, from which
// `made` is made, and makes other ids or cannot be taken.
void expect_same_as_whole(const Tokenizer& made, const std::string& vocab);

}  // namespace garonne::data
