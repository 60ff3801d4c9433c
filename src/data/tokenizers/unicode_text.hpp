// Text as tokenizers want it: valid UTF-8, and in Unicode's normal form C.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace garonne::data {

// Unicode's White_Space, which is what \s means to Hugging Face's expressions.
bool is_white_space(char32_t character);

// The character at `place` of a valid text, and its bytes.
std::pair<char32_t, std::size_t> character_at(std::string_view text, std::size_t place);

// The largest beginning of a valid text with at most `bytes` bytes that ends between characters.
std::size_t whole_characters(std::string_view text, std::size_t bytes);

// The bytes of the white space that the valid `text` begins or ends with.
std::size_t leading_white_space(std::string_view text);
std::size_t trailing_white_space(std::string_view text);

// Appends `text` to `valid` with each longest part that no character can begin with replaced by
// U+FFFD (the Unicode Standard, "U+FFFD substitution of maximal subparts", as decoders of the web
// and Python's errors="replace" do). Returns the bytes used: where more text `follows`, up to three
// bytes of a character that is not complete yet are left. `replaced`: counts those parts.
std::size_t append_valid_utf8(std::string_view text, bool follows, std::string& valid,
                              std::int64_t* replaced = nullptr);

// Appends the normal form C of a valid text.
void append_normal_form_c(std::string_view text, std::string& normal);

// The last place up to `end` at which a text that goes on can be cut, so that the normal form of it
// is that of its parts: before a character of ASCII, which combines with nothing before it. 0 where
// there is none.
std::size_t normal_form_cut(std::string_view text, std::size_t end);

// Whether a character is one that normal form C never changes, whatever stands before and after it.
// Some that are not changed either are not known here.
bool always_normal(char32_t character);

}  // namespace garonne::data
