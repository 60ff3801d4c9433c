// What a TOML text may be before a parser sees it: the parser and its tables work by recursion.
#pragma once

#include <string>
#include <string_view>

namespace garonne {

inline constexpr int most_key_parts = 16;
inline constexpr int most_toml_depth = 32;

// Throws ConfigError with the line: more than most_toml_bytes (base/file.hpp), a dotted key of more
// than `most_key_parts` parts, brackets nested more than `most_toml_depth` deep. `name` is that of
// the file.
void check_toml_limits(std::string_view text, const std::string& name);

}  // namespace garonne
