// A text many times over, for input that is longer or deeper than a reader takes.
#pragma once

#include <string>

namespace garonne {

inline std::string repeated(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

}  // namespace garonne
