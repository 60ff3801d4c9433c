#include "base/key_kinds.hpp"

namespace garonne {

std::string nearest_choice(const std::string& text, const std::vector<std::string>& choices) {
  const std::string near = nearest_word(text, choices);
  return near.empty() ? "" : fmt::format("; did you mean {}?", near);
}

std::vector<std::string> between_commas(const std::string& text) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t comma = std::min(text.find(',', begin), text.size());
    parts.push_back(text.substr(begin, comma - begin));
    begin = comma + 1;
  }
  return parts;
}

}  // namespace garonne
