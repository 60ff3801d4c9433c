#include "train/setup/no_decay.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <set>

#include "base/config.hpp"
#include "base/error.hpp"

namespace garonne::train {
namespace {

constexpr const char* key = "optimizer.no_decay";

std::vector<std::string> cut_at(const std::string& text, char mark) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(mark, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::string without_spaces_around(const std::string& text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

bool is_number(const std::string& word) {
  return std::all_of(word.begin(), word.end(),
                     [](unsigned char letter) { return std::isdigit(letter) != 0; });
}

[[noreturn]] void refuse(const std::string& part,
                         const std::vector<plan::ParameterSpec>& parameters) {
  std::set<std::string> words;
  for (const plan::ParameterSpec& parameter : parameters) {
    for (const std::string& word : cut_at(parameter.name, '.')) {
      if (!is_number(word)) words.insert(word);
    }
  }
  const std::vector<std::string> known(words.begin(), words.end());
  const std::string near = nearest_word(part, known);
  throw ConfigError(key, part,
                    fmt::format("is in no parameter's name; {}their parts are: {}",
                                near.empty() ? "" : fmt::format("did you mean {}? ", near),
                                fmt::join(known, ", ")));
}

}  // namespace

void apply_no_decay(const std::string& parts, std::vector<plan::ParameterSpec>& parameters) {
  if (parts.empty()) return;
  for (const std::string& given : cut_at(parts, ',')) {
    const std::string part = without_spaces_around(given);
    if (part.empty())
      throw ConfigError(key, parts, "has an empty part, which would be in every name");
    bool found = false;
    for (plan::ParameterSpec& parameter : parameters) {
      if (parameter.name.find(part) == std::string::npos) continue;
      parameter.decays = false;
      found = true;
    }
    if (!found) refuse(part, parameters);
  }
}

}  // namespace garonne::train
