#include "base/wrapped.hpp"

#include <algorithm>
#include <sstream>

namespace garonne {

std::size_t columns_of(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char byte) { return (byte & '\xC0') != '\x80'; }));
}

std::string wrapped(const std::string& text, std::size_t width, std::size_t indent) {
  std::string lines;
  std::istringstream given(text);
  for (std::string line; std::getline(given, line);) {
    std::size_t used = 0;
    bool first = true;
    std::istringstream words(line);
    for (std::string word; words >> word; first = false) {
      const std::size_t columns = columns_of(word);
      if (!first && used + 1 + columns > width) {
        lines += '\n' + std::string(indent, ' ');
        used = indent;
      } else if (!first) {
        lines += ' ';
        ++used;
      }
      lines += word;
      used += columns;
    }
    if (!given.eof()) lines += '\n';
  }
  return lines;
}

std::string below_table(const std::string& sentence) {
  return wrapped(sentence, most_table_columns, 2) + "\n";
}

}  // namespace garonne
