// Plain text files, and files of tokens of other programs, into a tokens file, in constant memory.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "data/tokens/token_file.hpp"

namespace garonne::data {

// What lies between two files of a dataset where the tokenizer has no token that ends a text; one
// that has it comes behind each file.
inline constexpr const char* text_separator = "\n\n";

struct TextConversion {
  // Training texts, in order; those that find_foreign_tokens knows by their names hold tokens of
  // `tokenizer` already.
  std::vector<std::string> inputs;
  std::vector<std::string> validation_inputs;  // held-out texts, in order; may be empty
  std::string output;
  std::string tokenizer = "byte";  // as open_tokenizer takes it
  int threads = 0;                 // that encode; 0: one a core
  bool show_progress = true;       // a bar over the bytes read, where there is a terminal
  // Takes sentences on what the user may not expect: what was replaced in which text, and what ends
  // a text. May be empty.
  std::function<void(const std::string&)> note;
};

// What is at the path of an output that it would replace, as "a file of 9000 tokens of the
// tokenizer byte"; empty where nothing is.
std::string tokens_at(const std::string& path);

// Writes a file beside `output`, makes it durable, then renames it, so that `output` is whole or
// what it was before; a failure removes the partial file. Returns the description of what was
// written. ConfigError: no input, a tokenizer that is not known or
// that cannot be used, a text given both for training and for
// validation, an output that is one of the texts. IoError: a text that is missing, empty, not a
// file or a file of another format; a disk that is full or refuses.
TokenFileInfo convert_text(const TextConversion& conversion);

}  // namespace garonne::data
