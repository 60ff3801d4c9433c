// Text in lines, for people.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace garonne {

// The most columns of a table or a line that `plan` prints.
inline constexpr std::size_t most_table_columns = 120;

// Characters of UTF-8 text, each of which is taken to be a column wide.
std::size_t columns_of(std::string_view text);

// `text` with its spaces made line breaks so that no line has more than `width` columns, where no
// word is longer. What is broken off begins with `indent` spaces.
std::string wrapped(const std::string& text, std::size_t width, std::size_t indent = 0);

// A sentence that stands below a table, with the end of its last line.
std::string below_table(const std::string& sentence);

}  // namespace garonne
