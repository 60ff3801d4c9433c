#pragma once

#include <algorithm>
#include <cctype>
#include <string>

namespace garonne {

// Letters of ASCII alone.
inline std::string lower_case(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char letter) {
    return static_cast<char>(letter < 0x80 ? std::tolower(letter) : letter);
  });
  return text;
}

}  // namespace garonne
