// Oniguruma's regular expressions, in which tokenizers of Hugging Face are written, as PCRE2's.
#pragma once

#include <string>

namespace garonne::data {

// `oniguruma`, which is valid UTF-8, as an expression that has the same matches in PCRE2 (with
// PCRE2_UTF and PCRE2_UCP), but for characters on which the Unicode tables of the two differ.
// Taken is only what is known to mean the same or can be written so: characters, lists of them,
// general categories and scripts, \s, \w and \d, groups, (?i: ), looks ahead, repetitions.
// ConfigError (key "tokenizer") with the place in bytes for everything else, and for what looks at
// what stands before a match, which keeps a text from being cut.
std::string rewrite_pattern(const std::string& oniguruma);

}  // namespace garonne::data
