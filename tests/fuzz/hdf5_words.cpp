#include "fuzz/hdf5_words.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>

namespace garonne::fuzz {

Words words_of(std::string_view line) {
  Words words;
  std::size_t begin = 0;
  while ((begin = line.find_first_not_of(' ', begin)) != std::string_view::npos) {
    const std::size_t end = std::min(line.find(' ', begin), line.size());
    words.emplace_back(line.substr(begin, std::min(end - begin, most_text)));
    begin = end;
  }
  return words;
}

std::string rest_of(std::string_view line, int words) {
  std::size_t begin = 0;
  for (int word = 0; word < words; ++word) {
    begin = line.find_first_not_of(' ', begin);
    begin = std::min(line.find(' ', begin), line.size());
  }
  return begin < line.size() ? std::string(line.substr(begin + 1)) : "";
}

std::uint64_t number_of(std::string_view word, std::uint64_t otherwise) {
  std::uint64_t number = otherwise;
  std::from_chars(word.data(), word.data() + word.size(), number);
  return number;
}

double real_of(const std::string& word) {
  return std::strtod(word.c_str(), nullptr);
}

std::string bytes_of(std::string_view hex) {
  std::string bytes;
  for (std::size_t at = 0; at + 2 <= hex.size(); at += 2) {
    unsigned value = 0;
    std::from_chars(hex.data() + at, hex.data() + at + 2, value, 16);
    bytes += static_cast<char>(value);
  }
  return bytes;
}

std::vector<std::string> split(const std::string& text, char mark) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(mark, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

Extent extent_of(const std::string& word, Extent* growing) {
  Extent extent;
  for (const std::string& part : split(word, ',')) {
    if (extent.size() == most_rank) break;
    extent.push_back(number_of(part));
    if (growing != nullptr)
      growing->push_back(part.find('*') == std::string::npos ? extent.back() : H5S_UNLIMITED);
  }
  return extent;
}

std::size_t elements_of(const Extent& extent) {
  std::size_t elements = 1;
  for (const hsize_t size : extent) {
    if (size != 0 && elements > most_attribute_elements / size) return most_attribute_elements + 1;
    elements *= size;
  }
  return elements;
}

}  // namespace garonne::fuzz
