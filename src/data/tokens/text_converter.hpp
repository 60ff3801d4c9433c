// Plain text files into a tokens file, in constant memory.
#pragma once

#include <string>
#include <vector>

#include "data/tokens/token_file.hpp"

namespace garonne::data {

// What lies between two files of a dataset, since bytes have no end-of-text token.
inline constexpr const char* text_separator = "\n\n";

struct TextConversion {
  std::vector<std::string> inputs;             // training texts, in order
  std::vector<std::string> validation_inputs;  // held-out texts, in order; may be empty
  std::string output;
  std::string tokenizer = "byte";
  bool show_progress = true;  // a bar over the bytes read, where there is a terminal
};

// Writes a file beside `output`, makes it durable, then renames it, so that `output` is whole or
// what it was before; a failure removes the partial file. Returns the description of what was
// written. ConfigError: no input, an unknown tokenizer, a text given both for training and for
// validation, an output that is one of the texts. IoError: a text that is missing, empty or not a
// file; a disk that is full or refuses.
TokenFileInfo convert_text(const TextConversion& conversion);

}  // namespace garonne::data
