// The kinds of keys: how a member of RunConfig is read from text, and shown.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/byte_units.hpp"
#include "base/bytes.hpp"
#include "base/config.hpp"
#include "base/error.hpp"
#include "base/key_limits.hpp"
#include "base/printable.hpp"

namespace garonne {

constexpr std::int64_t any_integer = std::numeric_limits<std::int64_t>::max();

// "; did you mean ...?" of what is no choice; empty where none is near.
std::string nearest_choice(const std::string& text, const std::vector<std::string>& choices);

// "a", "b" of "a,b" and of "a,b,".
std::vector<std::string> between_commas(const std::string& text);

template <typename Number>
Number parse_number(const std::string& key, const std::string& text, const char* what) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) throw ConfigError(key, text, what);
  return number;
}

template <typename Access>
KeySpec text_key(const std::string& name, Access access, std::vector<std::string> choices,
                 const std::string& help) {
  std::string range = choices.empty() ? "text" : fmt::format("{}", fmt::join(choices, ", "));
  return {
      name,
      KeyType::Text,
      range,
      help,
      [access](const RunConfig& config) { return access(const_cast<RunConfig&>(config)); },
      [=](RunConfig& config, const std::string& text) {
        if (!choices.empty() && std::find(choices.begin(), choices.end(), text) == choices.end())
          throw ConfigError(name, text, "must be one of " + range + nearest_choice(text, choices));
        if (!is_utf8(text)) throw ConfigError(name, text, "must be text in UTF-8");
        access(config) = text;
      }};
}

template <typename Access>
KeySpec integer_key(const std::string& name, Access access, std::int64_t least, std::int64_t most,
                    const std::string& help) {
  const std::string range = most == any_integer ? fmt::format(">= {}", least)
                                                : fmt::format(">= {} and <= {}", least, most);
  return {name,
          KeyType::Integer,
          range,
          help,
          [access](const RunConfig& config) {
            return fmt::format("{}", access(const_cast<RunConfig&>(config)));
          },
          [=](RunConfig& config, const std::string& text) {
            const auto number = parse_number<std::int64_t>(name, text, "must be an integer");
            if (number < least || number > most) throw ConfigError(name, text, "must be " + range);
            access(config) = number;
          }};
}

// Values in [least, below).
template <typename Access>
KeySpec real_key(const std::string& name, Access access, double least, double below,
                 const std::string& help) {
  const std::string range =
      std::isinf(below) ? fmt::format(">= {}", least) : fmt::format(">= {} and < {}", least, below);
  return {name,
          KeyType::Real,
          range,
          help,
          [access](const RunConfig& config) {
            return fmt::format("{}", access(const_cast<RunConfig&>(config)));
          },
          [=](RunConfig& config, const std::string& text) {
            const auto number = parse_number<double>(name, text, "must be a number");
            if (!std::isfinite(number) || number < least || number >= below) {
              throw ConfigError(name, text, "must be " + range);
            }
            // Of -0, which TOML would have as the integer 0 when it is read again.
            access(config) = number + 0.0;
          }};
}

template <typename Access>
KeySpec switch_key(const std::string& name, Access access, const std::string& help) {
  return {name,
          KeyType::Switch,
          "true, false",
          help,
          [access](const RunConfig& config) -> std::string {
            return access(const_cast<RunConfig&>(config)) ? "true" : "false";
          },
          [=](RunConfig& config, const std::string& text) {
            if (text != "true" && text != "false")
              throw ConfigError(name, text, "must be true or false");
            access(config) = text == "true";
          }};
}

// Integers of [least, most].
template <typename Access>
KeySpec list_key(const std::string& name, Access access, std::int64_t least, std::int64_t most,
                 std::size_t most_elements, const std::string& help) {
  const std::string range =
      fmt::format("up to {} integers >= {} and <= {} with commas", most_elements, least, most);
  return {name,
          KeyType::List,
          range,
          help,
          [access](const RunConfig& config) {
            return fmt::format("{}", fmt::join(access(const_cast<RunConfig&>(config)), ","));
          },
          [=](RunConfig& config, const std::string& text) {
            std::vector<std::int64_t> numbers;
            for (const std::string& element : between_commas(text)) {
              const auto number =
                  parse_number<std::int64_t>(name, element, "must be integers between commas");
              if (number < least || number > most || numbers.size() == most_elements)
                throw ConfigError(name, text, "must be " + range);
              numbers.push_back(number);
            }
            access(config) = std::move(numbers);
          }};
}

// Different names of `choices`, any where there are none; or "auto", which is an empty list.
template <typename Access>
KeySpec names_key(const std::string& name, Access access, std::vector<std::string> choices,
                  const std::string& help) {
  std::erase(choices, "auto");
  const std::string range =
      choices.empty() ? "auto, or names with commas"
                      : fmt::format("auto, or with commas of {}", fmt::join(choices, ", "));
  return {name,
          KeyType::Names,
          range,
          help,
          [access](const RunConfig& config) {
            const std::vector<std::string>& names = access(const_cast<RunConfig&>(config));
            return names.empty() ? std::string("auto") : fmt::format("{}", fmt::join(names, ","));
          },
          [=](RunConfig& config, const std::string& text) {
            if (!is_utf8(text)) throw ConfigError(name, text, "must be text in UTF-8");
            const std::vector<std::string> names =
                text == "auto" ? std::vector<std::string>() : between_commas(text);
            if (text.empty() || text.ends_with(','))
              throw ConfigError(name, text, "must be " + range);
            for (auto one = names.begin(); one != names.end(); ++one) {
              const bool known = choices.empty() ||
                                 std::find(choices.begin(), choices.end(), *one) != choices.end();
              if (one->empty() || !known)
                throw ConfigError(name, text, "must be " + range + nearest_choice(*one, choices));
              if (std::find(names.begin(), one, *one) != one)
                throw ConfigError(name, text, *one + " is there twice");
            }
            access(config) = names;
          }};
}

template <typename Access>
KeySpec bytes_key(const std::string& name, Access access, bool may_be_automatic,
                  const std::string& help) {
  const std::string range =
      may_be_automatic ? "bytes, as 600MiB or 2 GiB, or auto" : "bytes, as 4MiB";
  const std::string refusal = fmt::format("must be {}; units are {}", range, byte_units);
  return {name,
          KeyType::Bytes,
          range,
          help,
          [access](const RunConfig& config) {
            const std::int64_t bytes = access(const_cast<RunConfig&>(config));
            return bytes < 0 ? std::string("auto") : fmt::format("{}", bytes);
          },
          [=](RunConfig& config, const std::string& text) {
            if (may_be_automatic && text == "auto") {
              access(config) = RunConfig::automatic_budget;
              return;
            }
            const auto bytes = parse_bytes(text);
            if (!bytes) throw ConfigError(name, text, refusal);
            if (*bytes > most_key_bytes)
              throw ConfigError(name, text,
                                fmt::format("must be at most {} bytes", most_key_bytes));
            access(config) = *bytes;
          }};
}

}  // namespace garonne
