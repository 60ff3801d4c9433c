// The letters in which files of byte-level tokenizers write bytes: GPT-2's, where what is printable
// stands for itself and the others are U+0100 and on.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace garonne::data {

// `bytes` in these letters, as UTF-8.
std::string to_byte_letters(std::string_view bytes);

// The bytes of a text in these letters; nothing where it has another letter.
std::optional<std::string> from_byte_letters(std::string_view letters);

}  // namespace garonne::data
