#include "train/setup/no_decay.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <set>
#include <system_error>

#include "base/config.hpp"
#include "base/error.hpp"

namespace garonne::train {
namespace {

constexpr const char* no_decay_key = "optimizer.no_decay";
constexpr const char* groups_key = "optimizer.weight_decays";

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

[[noreturn]] void refuse_part(const char* key, const std::string& part,
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

bool has_part(const plan::ParameterSpec& parameter, const std::string& part) {
  return parameter.name.find(part) != std::string::npos;
}

double decay_of(const std::string& given, const std::string& text) {
  double decay = 0;
  const char* const end = text.data() + text.size();
  const auto [read, error] = std::from_chars(text.data(), end, decay);
  if (error == std::errc() && read == end && std::isfinite(decay) && decay >= 0) return decay;
  throw ConfigError(groups_key, given, "has something else than a number >= 0 behind the =");
}

}  // namespace

void apply_no_decay(const std::string& parts, std::vector<plan::ParameterSpec>& parameters) {
  if (parts.empty()) return;
  for (const std::string& given : cut_at(parts, ',')) {
    const std::string part = without_spaces_around(given);
    if (part.empty())
      throw ConfigError(no_decay_key, parts, "has an empty part, which would be in every name");
    bool found = false;
    for (plan::ParameterSpec& parameter : parameters) {
      if (!has_part(parameter, part)) continue;
      parameter.decays = false;
      found = true;
    }
    if (!found) refuse_part(no_decay_key, part, parameters);
  }
}

void apply_weight_decays(const std::string& groups, const std::string& no_decay,
                         std::vector<plan::ParameterSpec>& parameters) {
  if (groups.empty()) return;
  std::vector<bool> decided(parameters.size(), false);
  for (const std::string& given :
       no_decay.empty() ? std::vector<std::string>() : cut_at(no_decay, ',')) {
    for (std::size_t p = 0; p < parameters.size(); ++p)
      decided[p] = decided[p] || has_part(parameters[p], without_spaces_around(given));
  }
  for (const std::string& given : cut_at(groups, ',')) {
    const std::size_t mark = given.find('=');
    if (mark == std::string::npos) {
      throw ConfigError(groups_key, given,
                        "is not a part of names, =, and a number, as embedding=0.01");
    }
    const std::string part = without_spaces_around(given.substr(0, mark));
    if (part.empty())
      throw ConfigError(groups_key, given, "has an empty part, which would be in every name");
    const double decay = decay_of(given, without_spaces_around(given.substr(mark + 1)));
    bool known = false;
    bool decides = false;
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      if (!has_part(parameters[p], part)) continue;
      known = true;
      if (decided[p]) continue;
      decides = decided[p] = true;
      parameters[p].decays = decay > 0;
      parameters[p].weight_decay = decay;
    }
    if (!known) refuse_part(groups_key, part, parameters);
    if (!decides) {
      throw ConfigError(groups_key, given,
                        "is in names only for which a part before it or optimizer.no_decay has "
                        "decided; leave it out, or put it first");
    }
  }
}

}  // namespace garonne::train
